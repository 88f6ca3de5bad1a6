"""The claim: one process takes an execution, asks every gate again and records its START.

Read `CLAIM` from left to right. The steps share a `Performance`; the first that decides the result
sets it. An upstream call whose caller waits is claimed by the statement that accepts it: a worker
would do no more than this process does, after a message, a wake-up and a second look at the row. It
takes a place of this process, of which each organization has its share; its gates have just been
asked, and its START stands beside its ACCEPT. Everything else, and everything when no place is
free, goes to the workers.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction

from audit.actions import record, writing_evidence
from audit.events import Event, Outcome
from audit.inserts import InsertRow
from config.logs import request_id
from tools.accounts.callers import caller_of_execution
from tools.authorization import pins
from tools.authorization.facts import ClaimFacts, authorize_call, question_of
from tools.catalog.registry import catalog_tool
from tools.catalog.signatures import versions
from tools.catalog.signatures.version_signatures import ALTERED
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.results import FINAL, Status
from tools.definitions.vocabulary import SIGNATURE_INVALID
from tools.errors import Malformed, Refused
from tools.execution import cache, confirmations, dispatch, events, outputs, sessions
from tools.execution.call import Admission, Performance, Result
from tools.execution.dispatch import NoPlace, Seat
from tools.execution.finish import finish
from tools.limits import budgets
from tools.models import Execution
from tools.policy import gates
from tools.policy.gates import Stage
from tools.policy.questions import EffectiveRequest, Gate

SKIPPED = {
    Gate.NESTING: "The depth of a call does not change after it was accepted.",
    Gate.LOAD: "The call has waited for its turn already.",
    Gate.FAN_OUT: "The call is among those that are counted.",
    Gate.RATE: "The call was counted when it was accepted.",
    Gate.ARGUMENTS: "Parameters and version are those that were accepted: see `_same_version`.",
    Gate.BUDGET: "What the call may use was reserved when it was accepted.",
    Gate.CONFIRMATION: "`confirmations.spend` asks it, with the approval that was given.",
}


def ask_again(performance: Performance) -> None:
    """Every gate once more, at the moment of use: what was allowed may have been revoked."""
    execution = performance.execution
    try:
        _ask_gates(performance, performance.tool, Stage.ARRIVAL)
        _check_parent(execution)
        tool = _same_version(performance)
        later = [stage for stage in Stage if stage != Stage.ARRIVAL]
        _ask_gates(performance, tool, *later)
    except (Refused, Malformed) as refusal:
        performance.result = Result(
            Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
        )


def _check_parent(execution: Execution) -> None:
    """A call of a composite one that is over is not made any more. Raises `Refused`."""
    if execution.parent_id is None:
        return
    if Execution.objects.filter(pk=execution.parent_id, status__in=FINAL).exists():
        raise Refused(
            "The call that made this one was over before it began.",
            code="parent_over",
            gate="parent",
        )


def _ask_gates(performance: Performance, tool: CatalogTool, *stages: Stage) -> None:
    execution = performance.execution
    question = question_of(
        performance.caller,
        tool,
        EffectiveRequest.from_options(execution.requested_groups, execution.state),
        performance.snapshot,
        at_entry_point=execution.options.get("at_its_door") is True,
        facts=ClaimFacts(execution),
    )
    authorize_call(question, gates.select(*stages, skip=SKIPPED))


def _same_version(performance: Performance) -> CatalogTool:
    """What runs is the version that was admitted; one that was replaced meanwhile does not run."""
    execution = performance.execution
    tool = performance.snapshot.tool(execution.tool_name)
    if tool is not None and execution.parked_below is not None and tool.id == performance.tool.id:
        return tool  # what has begun goes on as it was, as long as the tool may be called
    if tool is None or tool.version_id != execution.tool_version_id:
        raise Refused(
            "The tool was changed or removed before the call began. Call it again.",
            code="tool_changed",
            gate="version",
        )
    return tool


def check_signature(performance: Performance) -> None:
    """Once more where it runs: what this process remembers is held against its signature."""
    tool = performance.tool
    if performance.result is None and not is_authentic(tool, performance.snapshot):
        performance.result = Result(
            Status.PERMISSION_DENIED,
            error_code=SIGNATURE_INVALID,
            error_message=tool.flaw or ALTERED,
        )


def _admitted_tool(execution: Execution, snapshot: Snapshot) -> CatalogTool:
    """The version that was admitted: the catalog's, or, when that was replaced, its own row."""
    tool = snapshot.tool(execution.tool_name)
    if tool is not None and tool.version_id == execution.tool_version_id:
        return tool
    version = execution.tool_version
    return catalog_tool(version.tool, version, snapshot.organization, snapshot.keys)


def claim(
    execution_id: UUID,
    worker: str,
    younger_than: timedelta | None = None,
    seat: Seat | None = None,
) -> Performance | None:
    """Read the execution, ask every gate again, take it and record its start.

    It may have ended there: it was refused now, or its answer is in the cache; it has its result
    then. None when another worker has it, or when it is over. Also while another execution works
    its answer out, or its organization has no seat: nothing is written then, and the row waits on.
    """
    execution = Execution.objects.candidate(
        execution_id, younger_than=younger_than, full=seat.full if seat else ()
    )
    if execution is None:
        return None
    with suppress(cache.WaitingForLeader, NoPlace, NotTaken):
        if seat:
            seat.take(execution.organization_id)
        return _claim_candidate(execution, worker)
    return None


class NotTaken(Exception):
    """Another worker was faster, or there is no room for the call."""


def _claim_candidate(execution: Execution, worker: str) -> Performance:
    """Most calls are taken by one statement; where a step changes rows too, or the call ends here,
    it is all or nothing."""
    request_id.set(execution.request_id)
    caller = caller_of_execution(execution)
    pinned_in = execution.session_id if execution.session_pinned else None
    snapshot = pins.snapshot_for(caller, pinned_in)
    tool = _admitted_tool(execution, snapshot)
    performance = Performance(execution, tool, caller, snapshot, worker)
    with ExitStack() as together:
        if _changes_more(performance):
            together.enter_context(transaction.atomic())
        for step in CLAIM:
            step(performance)
        if performance.result is not None:
            together.enter_context(transaction.atomic())
        take(performance)
        if performance.result is not None:
            finish(performance)
        notify = events.notify_pages if performance.result is None else events.notify_waiters
        transaction.on_commit(partial(notify, execution.pk))
    return performance


def _changes_more(performance: Performance) -> bool:
    """Whether a step of `CLAIM` may change or lock a row beside the call's own."""
    execution = performance.execution
    return (
        execution.held
        or execution.limited
        or execution.parent_id is not None  # it may begin on the approval of a batch
        or bool(execution.cache_key)
    )


def take(performance: Performance) -> None:
    """No record, no run: START is written by the statement that takes the row. Raises `NotTaken`,
    and `Unwritable`."""
    execution = performance.execution
    starts = performance.result is None and execution.parked_below is None
    performance.started = starts or execution.parked_below is not None
    evidence = start_evidence(performance) if starts else []
    with writing_evidence():
        if not Execution.objects.take(
            execution, evidence, worker=performance.worker, lease_s=settings.EXECUTION_LEASE_S
        ):
            raise NotTaken


def take_place(admission: Admission) -> None:
    """Where the call is to be performed here, and there is a place."""
    if _fits_here(admission):
        admission.place = dispatch.take_place(admission.caller.organization_id)


def _fits_here(admission: Admission) -> bool:
    """What is held, may be known already or has to wait for room is claimed later; so is what may
    take longer than its caller waits, for the answer must not come late."""
    tool = admission.resolved
    return (
        settings.EXECUTE_IN_PLACE == "upstream"
        and admission.goes_out
        and admission.timeout_s <= admission.wait_s
        and admission.need is None
        and tool.definition.cache_ttl_s is None
        and tool.max_concurrency is None
        and admission.snapshot.max_concurrency is None
        and is_authentic(tool, admission.snapshot)
    )


def claim_here(admission: Admission, execution: Execution) -> Performance:
    """The performance of a call that is about to be written."""
    execution.status, execution.worker = Status.RUNNING, dispatch.worker_name()
    execution.fence = execution.attempt = 1
    execution.held = execution.limited = False
    execution.reserved = budgets.applies(admission.caller, admission.resolved, admission.snapshot)
    return Performance(
        execution, admission.resolved, admission.caller, admission.snapshot, execution.worker
    )


def is_authentic(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether what this process remembers of the tool has the signature that it was given."""
    return not tool.flaw and versions.authentic(
        organization=snapshot.organization,
        tool=tool.id,
        name=tool.name,
        number=tool.number,
        label=tool.version,
        definition=tool.definition,
        version_digest=tool.digest,
        origin=tool.origin,
        signature=tool.signature,
        key_id=tool.key_id,
        keys=snapshot.keys,
    )


def start_evidence(performance: Performance) -> list[InsertRow]:
    """The rows of its record. Its payload is small, and shows before the run that the result's will
    find room."""
    execution = performance.execution
    begun = execution.status == Status.RUNNING  # as it is accepted; else by what takes it
    evidence: list[InsertRow] = []
    record(
        Event.TOOL_START,
        by=performance.actor,
        outcome=Outcome.STARTED,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        execution_id=execution.pk,
        payload={"options": execution.options},
        details={
            "session": str(execution.session_id) if execution.session_id else None,
            "requested_groups": execution.requested_groups,
            "granted_groups": sorted(performance.caller.granted_groups),
            "state": execution.state,
            "version": performance.tool.version,
            "isolation": performance.level,
            "sandbox_profile": performance.definition.sandbox_profile,
            "attempt": execution.attempt + (not begun),
            "fence": execution.fence + (not begun),
            "worker": performance.worker,
            **execution.parentage,
        },
        into=evidence,
    )
    return evidence


Step = Callable[[Performance], None]
CLAIM: tuple[Step, ...] = (
    ask_again,
    sessions.check_session,
    outputs.check_references,
    check_signature,
    confirmations.spend_approval,
    cache.find_or_lead,
)
