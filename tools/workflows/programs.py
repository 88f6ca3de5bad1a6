"""`run_program`: a short program of an agent, in which the tools its caller may use are functions.

Each turn runs the program inside the sandbox from its beginning, with the answers its calls have
had so far; it ends with the calls it wants next, which are made like any other. So only a row waits
for a tool or a person, and outputs of calls leave the sandbox only if they are printed.
"""

import json
from dataclasses import replace
from typing import Any

from django.db import connection
from django.utils import timezone

from sandbox.errors import ErrorCode
from sandbox.spec import Preloaded, RunOutcome, SandboxResult
from tools.authorization.listings import usable_tools
from tools.builtin.manifest import ISOLATED
from tools.catalog.registry import CatalogTool
from tools.definitions.implementations.tool_types import RUN_PROGRAM
from tools.definitions.results import Status
from tools.definitions.values import strict_json
from tools.execution import outcomes, sessions
from tools.execution.composing import CannotGoOn, Composition, Made, NotNow
from tools.execution.composition import Waiting
from tools.execution.context import Result
from tools.policy.questions import EffectiveRequest
from tools.runners.sandbox_runs import builtin_surroundings, run_program

MOST_CALLS = 200
MOST_SOURCE = 100_000  # characters
MOST_ANSWERS = 8 * 1024 * 1024  # bytes of all answers together: they go in with every turn
MOST_KEPT = 256 * 1024  # characters of calls that wait for room
MOST_PRINTED = 101_000  # characters beside an error; the program's side leaves the rest out sooner
MOST_TOOLS = 1_000
TURN_S = 30.0
_LEAST_S = 0.1  # of a turn that begins when the time is as good as over
MOST_CPU_MS = 120_000  # of all turns
NOT_DETERMINISTIC = "PROGRAM_NOT_DETERMINISTIC"
_LOST = 3
_ASTRAY = (
    "The program did something else than before, and cannot go on: {}. Sort what has no order, and"
    " pass times and chance in as inputs."
)


def turn(view: Composition) -> Result | Waiting:
    source, inputs = view.parameters.get("source"), view.parameters.get("inputs")
    if not isinstance(source, str) or len(source) > MOST_SOURCE or not isinstance(inputs, dict):
        raise CannotGoOn("PARAMETERS_WRONG", "source is a text and inputs an object.")
    if view.memory.get("wanted"):
        return _begin_rest(view)
    if view.open:
        return Waiting()
    made = _answered(view)
    outcome = _taken_on(view, source, inputs, made)
    view.used(outcome.usage)
    if outcome.outcome != RunOutcome.SUCCESS:
        return _lost(view, outcome)
    return _went(view, outcome, made)


def _answered(view: Composition) -> list[Made]:
    """Its calls in their order, as far as they are known: a turn that was lost may have left a gap,
    where it had asked for what is not there."""
    made: list[Made] = []
    while (one := view.made.get(str(len(made)))) is not None:
        made.append(one)
    return made


def _taken_on(
    view: Composition, source: str, inputs: dict[str, Any], made: list[Made]
) -> SandboxResult:
    """The program as far as it comes. No connection is held meanwhile."""
    given = {
        "source": source,
        "inputs": inputs,
        "answers": _answers(view, made),
        "functions": _functions(view, len(made)),
        "seed": str(view.execution.pk),
        "now": (view.execution.started_at or view.deadline).timestamp(),
    }
    job = view.job(given)
    connection.close()
    built_in = ISOLATED[RUN_PROGRAM]
    left_s = (view.deadline - timezone.now()).total_seconds()
    job = replace(job, timeout_s=max(_LEAST_S, min(TURN_S, left_s)))
    return run_program(job, Preloaded(built_in.module), builtin_surroundings(job, built_in))


def _answers(view: Composition, made: list[Made]) -> list[dict[str, Any]]:
    found = view.outputs((one.place for one in made), most_bytes=MOST_ANSWERS)
    digests: list[str] = view.memory.get("digests", [])
    answers = []
    for one, digest in zip(made, digests, strict=False):
        if one.succeeded and one.place not in found:
            raise CannotGoOn(
                "PROGRAM_TOO_LARGE",
                f"What its calls gave back is more than {MOST_ANSWERS} bytes, or has expired.",
            )
        answers.append(_answer(one, found.get(one.place)) | {"digest": digest})
    return answers


def _answer(one: Made, output: Any) -> dict[str, Any]:
    if one.succeeded:
        return {"tool": one.tool_name, "ok": True, "output": output}
    return {
        "tool": one.tool_name,
        "ok": False,
        "code": one.error_code,
        "message": one.error_message,
    }


def _functions(view: Composition, made: int) -> dict[str, list[str]]:
    """By how many calls had been made when it was first seen: each tool the caller may use, as a
    listing would have it. None goes, and none is seen sooner, when the program runs again: it is to
    do the same. What may no longer be called is refused when it is called.
    """
    known: dict[str, list[str]] = view.memory.setdefault("functions", {})
    if str(made) not in known:
        seen = {name for names in known.values() for name in names}
        new = [tool.name for tool in _usable(view) if tool.name not in seen]
        known[str(made)] = new[: MOST_TOOLS - len(seen)]
    return known


def _usable(view: Composition) -> list[CatalogTool]:
    """In a session, where the program's own calls have led it."""
    performance, execution = view.performance, view.execution
    asked = EffectiveRequest.of(execution.requested_groups, sessions.state_before(execution))
    return usable_tools(performance.caller, asked, performance.snapshot)


def _lost(view: Composition, outcome: SandboxResult) -> Result | Waiting:
    """A run that was lost had no effect outside: it is taken once more, and not for ever."""
    lost = view.memory.get("lost", 0) + 1
    if outcome.error_code in {ErrorCode.LOST, ErrorCode.CANCELLED} and lost < _LOST:
        view.memory["lost"] = lost
        raise NotNow
    return outcomes.result_of(outcome)


def _went(view: Composition, outcome: SandboxResult, made: list[Made]) -> Result | Waiting:
    went = outcome.output
    view.memory["lost"] = 0
    if view.spent["cpu_time_ms"] > MOST_CPU_MS:
        raise CannotGoOn("CPU_LIMIT", f"It used more than {MOST_CPU_MS // 1000} s of processor.")
    state = went.get("state") if isinstance(went, dict) else None
    if state == "wants":
        return _begin(view, went, made)
    if state == "done":
        output = {"printed": str(went.get("printed", "")), "result": went.get("result")}
        return Result(Status.SUCCESS, output=output | {"calls": len(made)})
    return _failed(went if isinstance(went, dict) else {}, state)


def _begin(view: Composition, went: dict[str, Any], made: list[Made]) -> Result | Waiting:
    """The requested calls are untrusted: the program could have asked for anything. They are stored
    before any of them begins: a worker that repeats a lost turn must know which call it was."""
    wanted = _wanted(went.get("calls"))
    if not wanted or len(made) + len(wanted) > MOST_CALLS:
        raise CannotGoOn("TOO_MANY_CALLS", f"A program may make {MOST_CALLS} calls, not more.")
    planned: list[str] = view.memory.get("digests", [])
    digests = planned[: len(made)] + [digest for _, _, digest in wanted]
    _check_planned(view, planned, digests)
    view.memory["digests"] = digests
    calls = {str(at): one[:2] for at, one in enumerate(wanted, len(made))}
    view.memory["wanted"] = calls if _can_be_kept(calls) else {}
    view.remember()
    return _begin_rest(view, calls)


def _begin_rest(
    view: Composition, wanted: dict[str, tuple[str, dict[str, Any]]] | None = None
) -> Waiting:
    """Where there is no room for one of them, it and those after it begin in a later turn. The
    program need not run again to ask for them, as long as they are kept."""
    for place, (name, parameters) in (wanted or view.memory["wanted"]).items():
        view.begin(place, name, parameters)
    view.memory["wanted"] = {}
    return Waiting()  # also where all are over: between two turns its time and its end are seen


def _can_be_kept(calls: dict[str, tuple[str, dict[str, Any]]]) -> bool:
    """What is large is not, nor what no row can hold: no honest program asks for that."""
    try:
        strict_json.check({place: [*call] for place, call in calls.items()})
    except strict_json.BadJson:
        return False
    return len(json.dumps(calls)) <= MOST_KEPT


def _check_planned(view: Composition, planned: list[str], digests: list[str]) -> None:
    """What a lost turn has begun must be what is asked for now. Raises `CannotGoOn`."""
    for number, digest in enumerate(digests):
        if str(number) in view.made and planned[number : number + 1] != [digest]:
            message = _ASTRAY.format(f"call {number + 1} was another one before")
            raise CannotGoOn(NOT_DETERMINISTIC, message)


def _wanted(calls: Any) -> list[tuple[str, dict[str, Any], str]]:
    """Empty for what is no list of calls: the harness was tampered with."""
    if not isinstance(calls, list):
        return []
    found = []
    for one in calls:
        if not isinstance(one, dict):
            return []
        name, parameters, digest = one.get("tool"), one.get("parameters"), one.get("digest")
        if not isinstance(name, str) or not isinstance(parameters, dict):
            return []
        found.append((name, parameters, str(digest)[:64]))
    return found


def _failed(went: dict[str, Any], state: Any) -> Result:
    if state == "astray":
        code, message = NOT_DETERMINISTIC, _ASTRAY.format(str(went.get("message"))[:500])
    else:
        code = "PROGRAM_ERROR"
        where = f" (line {went['line']})" if isinstance(went.get("line"), int) else ""
        message = (
            f"{str(went.get('error', 'Error'))[:100]}: {str(went.get('message'))[:500]}{where}"
        )
    details = {
        "printed": str(went.get("printed", ""))[:MOST_PRINTED],
        "line": went.get("line") if isinstance(went.get("line"), int) else None,
        "tool_error": str(went["code"])[:60] if went.get("code") else None,
    }
    return Result(Status.FAILED, error_code=code, error_message=message, error_details=details)
