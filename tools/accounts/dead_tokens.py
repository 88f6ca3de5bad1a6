"""Audits the use of expired or revoked tokens: an attempt shows that a secret has leaked.

Only a request with the whole secret is recorded, so that garbage cannot fill the audit log. One
record per token and minute, regardless of the number of attempts.
"""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from config.logs import request_id
from tools.definitions.callers import CallerKind
from tools.models import Token
from tools.models.callers import Holder

RECORD_INTERVAL = timedelta(minutes=1)


def record_ended_token_use(
    holder: Holder, token_id: object, *, reason: str, source_ip: str
) -> None:
    by = Actor(
        kind=CallerKind.AGENT if holder.agent_id else CallerKind.PERSON,
        name=holder.agent or holder.username,
        organization=holder.organization,
        id=str(holder.agent_id or holder.user_id),
        token_id=str(token_id),
        source_ip=source_ip,
        request_id=request_id.get(),
    )
    if not _is_recorded(by):
        _record_use(by, reason)


@transaction.atomic
def _record_use(by: Actor, reason: str) -> None:
    """The process that locks the token's row records the use; concurrent ones skip it."""
    row = Token.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=by.token_id)
    if row.first() is not None and not _is_recorded(by):
        record(
            Event.TOKEN_REFUSED, by=by, outcome=Outcome.DENIED, subject=by.token_id, reason=reason
        )


def _is_recorded(by: Actor) -> bool:
    lately = AuditRecord.objects.filter(
        organization=by.organization,
        subject=by.token_id,
        occurred_at__gt=timezone.now() - RECORD_INTERVAL,
    )
    return lately.filter(code=Event.TOKEN_REFUSED).exists()
