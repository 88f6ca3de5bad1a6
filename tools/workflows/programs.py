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
from tools.builtin.manifest import ISOLATED
from tools.definitions.implementations.tool_types import RUN_PROGRAM
from tools.definitions.results import Status
from tools.definitions.values import strict_json
from tools.execution import run
from tools.execution.call import Result
from tools.runners.sandbox_runs import builtin_surroundings, run_program
from tools.workflows.composition import CompositeKind, WaitCondition, register_kind
from tools.workflows.nested_calls import CallPostponed, Composition, CompositionFailed, NestedCall
from tools.workflows.tool_discovery import listed_tools

MOST_CALLS = 200
MOST_SOURCE = 100_000  # characters
MOST_ANSWERS = 8 * 1024 * 1024  # bytes of all answers together: every turn passes them
MOST_PENDING = 256 * 1024  # characters of calls that wait for room
MOST_PRINTED = 101_000  # characters beside an error; the program's side leaves the rest out sooner
MOST_TOOLS = 1_000
TURN_S = 30.0
_MIN_TURN_S = 0.1  # of a turn that begins when almost no time is left
MOST_CPU_MS = 120_000  # of all turns
NOT_DETERMINISTIC = "PROGRAM_NOT_DETERMINISTIC"
_MAX_LOST_RUNS = 3
_DIVERGED = (
    "The program did something else than before, and cannot go on: {}. Sort what has no order, and"
    " pass times and chance in as inputs."
)


def run_program_turn(view: Composition) -> Result | WaitCondition:
    source, inputs = view.parameters.get("source"), view.parameters.get("inputs")
    if not isinstance(source, str) or len(source) > MOST_SOURCE or not isinstance(inputs, dict):
        raise CompositionFailed("PARAMETERS_WRONG", "source is a text and inputs an object.")
    if view.memory.get("wanted"):
        return _begin_pending(view)
    if view.open_count:
        return WaitCondition()
    made = _finished_calls(view)
    outcome = _run_program(view, source, inputs, made)
    view.add_usage(outcome.usage)
    if outcome.outcome != RunOutcome.SUCCESS:
        return _retry_lost(view, outcome)
    return _next_turn(view, outcome, made)


def _finished_calls(view: Composition) -> list[NestedCall]:
    """Its calls in their order, up to the first gap: a turn that was lost may have left one."""
    made: list[NestedCall] = []
    while (one := view.calls.get(str(len(made)))) is not None:
        made.append(one)
    return made


def _run_program(
    view: Composition, source: str, inputs: dict[str, Any], made: list[NestedCall]
) -> SandboxResult:
    """Run the program to its next calls or its end. No connection is held meanwhile."""
    given = {
        "source": source,
        "inputs": inputs,
        "answers": _call_answers(view, made),
        "functions": _functions(view, len(made)),
        "seed": str(view.execution.pk),
        "now": (view.execution.started_at or view.deadline).timestamp(),
    }
    job = view.build_run(given)
    connection.close()
    built_in = ISOLATED[RUN_PROGRAM]
    left_s = (view.deadline - timezone.now()).total_seconds()
    job = replace(job, timeout_s=max(_MIN_TURN_S, min(TURN_S, left_s)))
    return run_program(job, Preloaded(built_in.module), builtin_surroundings(job, built_in))


def _call_answers(view: Composition, made: list[NestedCall]) -> list[dict[str, Any]]:
    found = view.load_outputs((one.place for one in made), most_bytes=MOST_ANSWERS)
    digests: list[str] = view.memory.get("digests", [])
    answers = []
    for one, digest in zip(made, digests, strict=False):
        if one.succeeded and one.place not in found:
            raise CompositionFailed(
                "PROGRAM_TOO_LARGE",
                f"What its calls gave back is more than {MOST_ANSWERS} bytes, or has expired.",
            )
        answers.append(_call_answer(one, found.get(one.place)) | {"digest": digest})
    return answers


def _call_answer(one: NestedCall, output: Any) -> dict[str, Any]:
    if one.succeeded:
        return {"tool": one.tool_name, "ok": True, "output": output}
    return {
        "tool": one.tool_name,
        "ok": False,
        "code": one.error_code,
        "message": one.error_message,
    }


def _functions(view: Composition, made: int) -> dict[str, list[str]]:
    """The tools that the caller may use, by the number of calls made when each was first seen. None
    is removed, and none is seen sooner, when the program runs again: it must do the same. A tool
    that may no longer be called is refused when it is called.
    """
    known: dict[str, list[str]] = view.memory.setdefault("functions", {})
    if str(made) not in known:
        seen = {name for names in known.values() for name in names}
        new = [tool.name for tool in listed_tools(view) if tool.name not in seen]
        known[str(made)] = new[: MOST_TOOLS - len(seen)]
    return known


def _retry_lost(view: Composition, outcome: SandboxResult) -> Result | WaitCondition:
    """A lost run had no effect outside the sandbox: it is repeated, a few times."""
    lost = view.memory.get("lost", 0) + 1
    if outcome.error_code in {ErrorCode.LOST, ErrorCode.CANCELLED} and lost < _MAX_LOST_RUNS:
        view.memory["lost"] = lost
        raise CallPostponed
    return run.result_of(outcome)


def _next_turn(
    view: Composition, outcome: SandboxResult, made: list[NestedCall]
) -> Result | WaitCondition:
    report = outcome.output
    view.memory["lost"] = 0
    if view.usage["cpu_time_ms"] > MOST_CPU_MS:
        raise CompositionFailed(
            "CPU_LIMIT", f"It used more than {MOST_CPU_MS // 1000} s of processor."
        )
    state = report.get("state") if isinstance(report, dict) else None
    if state == "wants":
        return _begin_calls(view, report, made)
    if state == "done":
        output = {"printed": str(report.get("printed", "")), "result": report.get("result")}
        return Result(Status.SUCCESS, output=output | {"calls": len(made)})
    return _program_error(report if isinstance(report, dict) else {}, state)


def _begin_calls(
    view: Composition, report: dict[str, Any], made: list[NestedCall]
) -> Result | WaitCondition:
    """The requested calls are untrusted: the program could have asked for anything. They are stored
    before any of them begins: a worker that repeats a lost turn must know which call it was."""
    wanted = _parse_calls(report.get("calls"))
    if not wanted or len(made) + len(wanted) > MOST_CALLS:
        raise CompositionFailed(
            "TOO_MANY_CALLS", f"A program may make {MOST_CALLS} calls, not more."
        )
    planned: list[str] = view.memory.get("digests", [])
    digests = planned[: len(made)] + [digest for _, _, digest in wanted]
    _check_digests(view, planned, digests)
    view.memory["digests"] = digests
    calls = {str(at): one[:2] for at, one in enumerate(wanted, len(made))}
    view.memory["wanted"] = calls if _can_be_stored(calls) else {}
    view.save_memory()
    return _begin_pending(view, calls)


def _begin_pending(
    view: Composition, wanted: dict[str, tuple[str, dict[str, Any]]] | None = None
) -> WaitCondition:
    """Without room for one of them, it and those after it begin in a later turn. The program need
    not run again to request them, as long as they are stored."""
    for place, (name, parameters) in (wanted or view.memory["wanted"]).items():
        view.begin_call(place, name, parameters)
    view.memory["wanted"] = {}
    return (
        WaitCondition()
    )  # also where all are over: between two turns its time and its end are seen


def _can_be_stored(calls: dict[str, tuple[str, dict[str, Any]]]) -> bool:
    """False for large calls, and for text that PostgreSQL cannot store."""
    try:
        strict_json.check({place: [*call] for place, call in calls.items()})
    except strict_json.BadJson:
        return False
    return len(json.dumps(calls)) <= MOST_PENDING


def _check_digests(view: Composition, planned: list[str], digests: list[str]) -> None:
    """Calls of a lost turn must be the calls that are requested now. Raises `CompositionFailed`."""
    for number, digest in enumerate(digests):
        if str(number) in view.calls and planned[number : number + 1] != [digest]:
            message = _DIVERGED.format(f"call {number + 1} was another one before")
            raise CompositionFailed(NOT_DETERMINISTIC, message)


def _parse_calls(calls: Any) -> list[tuple[str, dict[str, Any], str]]:
    """Empty for anything but a list of calls: the harness was tampered with."""
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


def _program_error(report: dict[str, Any], state: Any) -> Result:
    if state == "astray":
        code, message = NOT_DETERMINISTIC, _DIVERGED.format(str(report.get("message"))[:500])
    else:
        code = "PROGRAM_ERROR"
        where = f" (line {report['line']})" if isinstance(report.get("line"), int) else ""
        message = (
            f"{str(report.get('error', 'Error'))[:100]}: {str(report.get('message'))[:500]}{where}"
        )
    details = {
        "printed": str(report.get("printed", ""))[:MOST_PRINTED],
        "line": report.get("line") if isinstance(report.get("line"), int) else None,
        "tool_error": str(report["code"])[:60] if report.get("code") else None,
    }
    return Result(Status.FAILED, error_code=code, error_message=message, error_details=details)


register_kind(RUN_PROGRAM, CompositeKind(run_program_turn))
