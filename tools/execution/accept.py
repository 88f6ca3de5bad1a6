"""Acceptance: an admitted call becomes a row, with what it takes along, all or none of it.

Read `ACCEPTANCE` from left to right. A call whose answer is known is answered here, one that needs
a person is held here, any other waits for a worker. Whether a person is needed is found out before
the price, for a held call is never answered from the cache; it is asked for after the budget.

The execution, what it reserves, its evidence and its request record are written by one statement,
`write`, which also looks once more at what may not have changed. Most calls need no other, and so
no transaction.
"""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction

from audit.actions import insert_with_evidence, record, writing_evidence
from audit.events import Event, Outcome
from audit.inserts import InsertRow
from config.logs import request_id
from tools.accounts.callers import actor_of
from tools.authorization import request_records
from tools.authorization.facts import audit_halted, authorize_call
from tools.catalog import model_prices
from tools.catalog.tiers import tier_now
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.results import REFUSED, Status
from tools.execution import cache, claim, confirmations, events
from tools.execution.call import Admission
from tools.execution.claim import start_evidence
from tools.limits import rate_limits
from tools.models import Execution
from tools.models.pipeline_sql import (
    NO_HITS,
    NOT_HALTED,
    RESERVATION_REFUSED,
    RESERVE_PARTS,
)
from tools.policy import gates
from tools.policy.gates import Stage
from tools.policy.questions import Gate


def build_row(admission: Admission, status: Status, **ended: Any) -> Execution:
    """Not written yet: see `write_rows`."""
    call, caller, tool = admission.call, admission.caller, admission.resolved
    # A refusal is not kept under its key: what was wrong may be put right and asked again.
    refused = status in REFUSED
    resolved = bool(admission.refers_to) and not refused
    key = None if refused else call.idempotency_key
    execution = Execution(
        pk=call.id,
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        agent_id=caller.agent_id,
        token_id=caller.token_id,
        made_by_id=caller.maker.id if caller.maker else None,
        session_id=admission.session.pk if admission.session else None,
        parent_id=call.parent.id if call.parent else None,
        place=call.parent.place if call.parent else "",
        depth=call.parent.depth if call.parent else 0,
        retry_of=call.retry_of,
        composite=tool.definition.composite,
        tool_name=tool.name,
        tool_version_id=tool.version_id,
        # What was refused is kept as it was sent: nothing that it pointed at was used.
        parameters=call.parameters if refused else admission.parameters,
        parameters_asked=call.parameters if resolved else None,
        refers_to=admission.refers_to if resolved else [],
        requested_groups=admission.requested_groups,
        state=admission.asked.state,
        timeout_s=admission.timeout_s,
        options=call.options,
        request_id=request_id.get(),
        source_ip=caller.source_ip,
        idempotency_key=key,
        fingerprint=call.fingerprint if key else "",
        rated_by=admission.rated_by,
        cost=Decimal(0) if refused else admission.cost,
        cache_key=admission.cache_key,
        status=status,
        **({"warnings": admission.warnings} | ended),
    )
    execution.version_label, execution.rate = tool.version, admission.rate
    return execution


def write_rows(execution: Execution, *belonging: InsertRow) -> None:
    """Of a call that was refused. Raises `Unwritable` where evidence cannot be written."""
    insert_with_evidence(Execution.objects.insert_of(execution), *belonging)
    transaction.on_commit(partial(events.notify_pages, execution.pk))


SKIPPED = {
    Gate.STANDING: "The caller was authenticated for this request, and is active.",
}


def ask_gates(admission: Admission, *stages: Stage) -> None:
    """Raises the first gate's refusal."""
    checks = gates.select(*stages, skip=SKIPPED)
    admission.warnings += authorize_call(admission.question, checks)


def accept(admission: Admission) -> Execution:
    """The row of a call that may be made. Raises `Refused`; nothing is taken then."""
    with ExitStack() as undo:
        undo.callback(admission.give_place_back)
        with ExitStack() as admission.transaction:
            for step in ACCEPTANCE:
                step(admission)
        undo.pop_all()
    return admission.accepted


def begin(admission: Admission) -> None:
    """The steps that follow change rows, together or not at all. Where `write` is the only one that
    does, its statement is a transaction by itself."""
    if admission.need is not None or admission.resolved.definition.cache_ttl_s is not None:
        admission.transaction.enter_context(transaction.atomic())
        confirm_rate(admission)


def confirm_rate(admission: Admission) -> None:
    """Before every other lock of the transaction. A call that is refused here does not count."""
    rate, admission.limits.rate_state = admission.rate, None
    admission.limits.rate_state = rate_limits.confirm(
        rate, caller=admission.caller, tool=admission.resolved
    )
    admission.limits.rate_confirmed = True


def find_need(admission: Admission) -> None:
    """Awaiting an approval is no refusal: it is asked for after the budget."""
    question = admission.question
    checks = gates.select(Stage.APPROVAL, skip=SKIPPED)
    for verdict in gates.decide(question, checks):
        if not verdict.passed and verdict.requirement is None:
            raise gates.refusal_of(verdict, question)
        admission.need = verdict.requirement or admission.need
    if admission.need is not None and confirmations.is_covered_by_batch_approval(
        admission, admission.need
    ):
        admission.need = None
    if admission.resolved.definition.entry_point == RUN_BATCH:
        admission.need, admission.covers = confirmations.batch_requirement(admission)


def find_price(admission: Admission) -> None:
    """What it costs at most; a hit costs what the tool declares for one (ruling 17)."""
    if admission.need is None:
        admission.hit = cache.find_answer(admission)
    if admission.limits.shed is not None and admission.hit is None:
        raise admission.limits.shed
    definition = admission.resolved.definition
    most = model_prices.most(definition, admission.parameters)
    admission.cost = definition.cost_per_hit if admission.hit else most


def reserve_budget(admission: Admission) -> None:
    ask_gates(admission, Stage.BUDGET)


def write(admission: Admission) -> None:
    """The row, with its evidence: what cannot be put on record is not accepted."""
    if admission.hit is not None:
        ended = cache.hit_columns(admission, admission.hit)
        admission.execution = build_row(admission, Status.SUCCESS, **ended)
    else:
        status = Status.PENDING if admission.need is None else Status.REQUIRES_CONFIRMATION
        admission.execution = build_row(admission, status)
    if admission.place is not None:
        admission.performance = claim.claim_here(admission, admission.execution)
    # The key of an organization's evidence may be made first, then the lists of a request: each
    # waits for the request that makes it at the same time.
    belonging = [*_evidence(admission), _request_record(admission)]
    if admission.performance is not None:
        belonging += start_evidence(admission.performance)
    if not _write_accepted(admission, belonging):
        with transaction.atomic():
            confirm_rate(admission)
            admission.accepted.rate = admission.rate
            if not _write_accepted(admission, belonging):
                raise audit_halted()
    transaction.on_commit(partial(events.notify_pages, admission.execution.pk))


def _write_accepted(admission: Admission, belonging: list[InsertRow]) -> bool:
    """False where the statement found that its audit log is halted, or that the rate is to be
    confirmed. Raises `Unwritable`, `QuotaExceeded`, and `IntegrityError` where another row has
    the execution's idempotency key or its place."""
    execution, limits = admission.accepted, admission.limits
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    if admission.performance is not None:
        conditions.append(NOT_HALTED)
        parameters["log"] = admission.caller.organization
    if admission.rated_by == rate_limits.REDIS and not limits.rate_confirmed:
        conditions.append(NO_HITS)
        parameters |= rate_limits.lock_parameters(admission.caller, admission.resolved)
    with writing_evidence(), ExitStack() as refusing:
        if limits.reservation is None:
            return Execution.objects.accept(
                execution, belonging, conditions=conditions, parameters=parameters
            )
        refusing.enter_context(limits.reservation.refusing())
        return Execution.objects.accept(
            execution,
            belonging,
            conditions=conditions,
            reservation=RESERVE_PARTS,
            refused=RESERVATION_REFUSED,
            parameters=parameters | limits.reservation.parameters(execution.pk),
        )


def _evidence(admission: Admission) -> list[InsertRow]:
    """What is held or answered at once has a record of its own."""
    rows: list[InsertRow] = []
    if admission.need is not None or admission.hit is not None:
        return rows
    execution, caller, tool = admission.accepted, admission.caller, admission.resolved
    record(
        Event.TOOL_ACCEPT,
        by=actor_of(caller),
        outcome=Outcome.STARTED,
        subject=tool.name,
        digest=tool.digest,
        execution_id=execution.pk,
        payload={"parameters": execution.asked},
        sensitive=tool.definition.sensitive,
        details={
            "requested_groups": execution.requested_groups,
            "granted_groups": sorted(caller.granted_groups),
            "state": execution.state,
            "session": str(execution.session_id) if execution.session_id else None,
            "license_tier": tier_now(admission.snapshot).name,
            "version": tool.version,
            "timeout_s": execution.timeout_s,
            "cost": str(execution.cost),
            **execution.references,
            "idempotency_key_sha256": _digest(execution.idempotency_key),
            **execution.parentage,
            **execution.retried,
        },
        into=rows,
    )
    return rows


def _request_record(admission: Admission) -> InsertRow:
    return request_records.build_record(
        admission.caller,
        admission.asked,
        admission.snapshot,
        kind="execute",
        session_id=admission.accepted.session_id,
        execution_id=admission.accepted.pk,
    )


def _digest(key: str | None) -> str | None:
    return None if key is None else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def hold(admission: Admission) -> None:
    if admission.need is not None:
        confirmations.request_approval(admission, admission.need)


def serve(admission: Admission) -> None:
    if admission.hit is not None:
        cache.record_hit(admission, admission.hit)


Step = Callable[[Admission], None]
ACCEPTANCE: tuple[Step, ...] = (
    find_need,
    begin,
    find_price,
    reserve_budget,
    claim.take_place,
    write,
    hold,
    serve,
)
