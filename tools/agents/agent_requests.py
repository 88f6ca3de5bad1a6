"""Actions of the API and pages on agent runs: start a run, read its steps, follow its events."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from tools.agents import recordings
from tools.agents.call_rows import Spent
from tools.agents.planning.plan_outcomes import rows_of
from tools.agents.run_parameters import MOST_QUESTION, REACT
from tools.agents.steps import AgentCallRows, AgentStep
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import RUN_AGENT
from tools.definitions.results import Status
from tools.errors import Malformed
from tools.execution.call import Call
from tools.execution.reading import readable
from tools.models import Execution, Session
from tools.models.execution_queryset import ExecutionQuerySet

runs = recordings.runs
one_of = recordings.one_of


@dataclass(frozen=True, slots=True)
class AgentRunReport:
    """A run and its progress. `answer` is None until there is one."""

    run: Execution
    pattern: str
    question: str
    steps: tuple[AgentStep, ...]
    spent: Spent
    session: str | None
    state: str
    answer: str | None
    plan: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AgentRunRequest:
    """A parsed request to an agent. `parameters` are those of `run_agent`; for a run that continues
    or replays another one, a missing parameter has the value of that run."""

    parameters: dict[str, Any]
    group: list[str] | None = None
    state: str | None = None
    session: str | None = None
    timeout_s: float | None = None
    idempotency_key: str | None = None


def call_of(caller: Caller, wanted: AgentRunRequest) -> Call:
    """Validates the request. Raises `Malformed`, and `NotFound` or `Forbidden` for a run that may
    not be continued."""
    given = {name: one for name, one in wanted.parameters.items() if one is not None}
    _check_model(given)
    group, state = wanted.group, wanted.state
    if (earlier := _earlier(caller, given)) is not None:
        given["question"] = given.get("question") or _question(earlier)
        if wanted.session is None:
            group = earlier.requested_groups if group is None else group
            state = _first_state(earlier, given) if state is None else state
    if not given.get("question"):
        raise Malformed("A request of an agent has a question.", field="question")
    return Call(
        tool_name=RUN_AGENT,
        parameters=given,
        group=group,
        state=state,
        session=wanted.session,
        timeout_s=wanted.timeout_s,
        idempotency_key=wanted.idempotency_key,
        at_its_door=True,
        plain=True,
    )


def models() -> list[str]:
    """The patterns that may be requested by name."""
    return sorted({settings.LLM_MODEL, *settings.LLM_PRICES} - {""})


def report_of(caller: Caller, run: Execution) -> AgentRunReport:
    """Of its calls those that the caller may read."""
    row = Execution.objects.only("memory", "parameters", "session", "state").get(pk=run.pk)
    rows = rows_of(row, readable(caller))
    session = str(row.session_id) if row.session_id else row.memory.get("session")
    given, output = row.parameters, run.output if isinstance(run.output, dict) else {}
    return AgentRunReport(
        run,
        str(given.get("pattern", REACT)),
        _question(row),
        tuple(rows.steps()),
        rows.spent,
        session,
        _state(row, rows, session),
        str(output["answer"]) if run.status == Status.SUCCESS and "answer" in output else None,
        rows.told(),
    )


def lately(caller: Caller) -> ExecutionQuerySet:
    """The caller's runs of agents that no other call made, the newest first."""
    return runs(caller).filter(composite=True, parent__isnull=True).order_by("-created_at", "-pk")


def _check_model(given: dict[str, Any]) -> None:
    name = given.get("model")
    if name and name not in models():
        known = ", ".join(models()) or "none"
        raise Malformed(
            f"No agent may ask the model {name[:60]}; it may ask: {known}.", field="model"
        )


def _earlier(caller: Caller, given: dict[str, Any]) -> Execution | None:
    """The run that it continues or replays. Raises where the caller may not."""
    named = [name for name in ("continues", "replays") if given.get(name)]
    if not named:
        return None
    if len(named) > 1:
        raise Malformed("A request continues a run or replays it, not both.", field="replays")
    identifier = _identifier(named[0], str(given[named[0]]))
    run = recordings.to_go_on_from(caller, identifier)
    recordings.check_rights(caller, run, recordings.steps_of(run))
    return run


def _identifier(field: str, given: str) -> UUID:
    try:
        return UUID(given)
    except ValueError:
        raise Malformed(f"{field} is the id of a request of an agent.", field=field) from None


def _first_state(earlier: Execution, given: dict[str, Any]) -> str:
    """A replay starts in the state where that run started, a continuation in the state where it
    ended."""
    if given.get("replays"):
        return str(earlier.state)
    session = earlier.session_id or Execution.objects.values_list("memory", flat=True).get(
        pk=earlier.pk
    ).get("session")
    found = session and Session.objects.filter(pk=session).values_list("state", flat=True).first()
    return str(found or earlier.state)


def _state(row: Execution, rows: AgentCallRows, session: str | None) -> str:
    if session is None:
        return rows.state_after(str(row.state))
    found = Session.objects.filter(pk=session).values_list("state", flat=True).first()
    return str(found or row.state)


def _question(run: Execution) -> str:
    return str(run.parameters.get("question", ""))[:MOST_QUESTION]
