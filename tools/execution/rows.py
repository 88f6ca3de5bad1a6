"""The row of a call, as its admission left it.

It is written together with what belongs to it, evidence above all, by one statement.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from audit.actions import insert_with_evidence, writing_evidence
from audit.inserts import InsertRow
from config.logs import request_id
from tools.authorization.facts import audit_halted
from tools.definitions.results import REFUSED, Status
from tools.execution import bell
from tools.execution.context import Admission
from tools.models import Execution


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
    """Raises `Unwritable` where evidence cannot be written, `IntegrityError` where another row has
    the execution's idempotency key or its place."""
    insert_with_evidence(Execution.objects.insert_of(execution), *belonging)
    transaction.on_commit(partial(bell.announce, execution.pk))


def write_begun(execution: Execution, belonging: Sequence[InsertRow], *, log: str) -> None:
    """The same of a call that this process performs. Raises `AuditHalted` too."""
    with writing_evidence():
        begun = Execution.objects.begin(
            execution, belonging, log=log, lease_s=settings.EXECUTION_LEASE_S
        )
    if not begun:
        raise audit_halted()
    transaction.on_commit(partial(bell.announce, execution.pk))
