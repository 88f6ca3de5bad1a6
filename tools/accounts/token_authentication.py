"""Authenticates bearer tokens: the caller behind a valid one, the refusal of an expired, revoked or
unknown one. It costs one indexed query, which also returns the organization's revision, so that the
process knows whether its catalog is current.

The use of an expired or revoked token is audited, since it shows that a secret has leaked. Only a
request with the whole secret is recorded, so that garbage cannot fill the audit log. One record per
token and minute, regardless of the number of attempts.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from config.logs import request_id
from tools.accounts.bearer_tokens import Presented, hashed, matches, read_token
from tools.accounts.callers import build_caller
from tools.definitions.callers import Caller, CallerKind
from tools.errors import Unauthenticated
from tools.models import Token
from tools.models.callers import Holder, TokenRow, holder_of_token

LAST_USED_STEP = timedelta(minutes=1)  # a write per minute and token, not per request
RECORD_STEP = timedelta(minutes=1)
REFUSAL = "The token is not valid. Ask an administrator for a new one."
_UNKNOWN_TOKEN = Presented("0" * 8, "0" * 43)


def caller_of_token(text: str, *, source_ip: str = "") -> Caller:
    """The caller behind a bearer token. Raises `Unauthenticated`, always with the same words."""
    presented = read_token(text)
    if presented is None:
        raise Unauthenticated(REFUSAL)
    found = holder_of_token(presented.public_id)
    if found is None:
        matches(_UNKNOWN_TOKEN, hashed(presented.secret))  # the same work as for a known one
        raise Unauthenticated(REFUSAL)
    holder, token = found
    now = timezone.now()
    if not matches(presented, token.secret_hash):
        raise Unauthenticated(REFUSAL)
    if reason := _invalid_reason(holder, token, now):
        _record_refusal(holder, token.id, reason=reason, source_ip=source_ip)
        raise Unauthenticated(REFUSAL)
    if not holder.active:
        _record_refusal(holder, token.id, reason="agent_suspended", source_ip=source_ip)
        raise Unauthenticated("The agent is suspended.", code="agent_suspended")
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_STEP:
        Token.objects.filter(pk=token.id).update(last_used_at=now)
    return build_caller(holder, token.limits, token_id=token.id, source_ip=source_ip)


def _invalid_reason(holder: Holder, token: TokenRow, now: datetime) -> str:
    """Why a token with the right secret is invalid; empty where it is valid."""
    if token.revoked_at:
        return "token_revoked"
    if token.expires_at <= now:
        return "token_expired"
    return "" if holder.user_active else "holder_inactive"


def _record_refusal(holder: Holder, token_id: object, *, reason: str, source_ip: str) -> None:
    by = Actor(
        kind=CallerKind.AGENT if holder.agent_id else CallerKind.PERSON,
        name=holder.agent or holder.username,
        organization=holder.organization,
        id=str(holder.agent_id or holder.user_id),
        token_id=str(token_id),
        source_ip=source_ip,
        request_id=request_id.get(),
    )
    if not _was_recorded(by):
        _record_once(by, reason)


@transaction.atomic
def _record_once(by: Actor, reason: str) -> None:
    """The process that locks the token's row records the use; concurrent ones skip it."""
    row = Token.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=by.token_id)
    if row.first() is not None and not _was_recorded(by):
        record(
            Event.TOKEN_REFUSED, by=by, outcome=Outcome.DENIED, subject=by.token_id, reason=reason
        )


def _was_recorded(by: Actor) -> bool:
    recent = AuditRecord.objects.filter(
        organization=by.organization,
        subject=by.token_id,
        occurred_at__gt=timezone.now() - RECORD_STEP,
    )
    return recent.filter(code=Event.TOKEN_REFUSED).exists()
