"""Bearer tokens: `tcr_`, eight characters that identify the row, 43 of secret, six of checksum.

The checksum lets garbage be refused, and leaked tokens be recognized, without a query. The secret
is random enough that a fast keyed hash is the right one; its key is not in the database.

The use of an expired or revoked token is audited: it shows that a secret has leaked. Only a request
with the whole secret is recorded, so that garbage cannot fill the audit log; one record per token
and minute, regardless of the number of attempts.
"""

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from config.logs import request_id
from tools.definitions.callers import CallerKind
from tools.models import Token
from tools.models.callers import Holder

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TOKEN = re.compile(r"tcr_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")
RECORD_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A token that is well formed; its row says whether it is valid."""

    public_id: str
    secret: str


def new_token() -> tuple[str, PresentedToken]:
    """A fresh token, to be shown once, and its parts."""
    presented = PresentedToken(_random(8), _random(43))
    body = f"tcr_{presented.public_id}_{presented.secret}"
    return body + _checksum(body), presented


def read_token(text: str) -> PresentedToken | None:
    """The parts of a token, or None for anything that is no token of this product."""
    match = _TOKEN.fullmatch(text)
    if not match or not hmac.compare_digest(_checksum(text[:-6]), match[3]):
        return None
    return PresentedToken(match[1], match[2])


def hash_secret(secret: str) -> str:
    key = hashlib.sha256(b"toolcrib token " + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, secret.encode("ascii"), hashlib.sha256).hexdigest()


def matches_hash(presented: PresentedToken, secret_hash: str) -> bool:
    return hmac.compare_digest(hash_secret(presented.secret), secret_hash)


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


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode("ascii")), ""
    for _ in range(6):
        value, digit = divmod(value, 62)
        digits = _ALPHABET[digit] + digits
    return digits


@transaction.atomic
def _record_use(by: Actor, reason: str) -> None:
    """The process that locks the token's row records the use; concurrent ones skip it."""
    row = Token.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=by.token_id)
    if row.first() is not None and not _is_recorded(by):
        record(
            Event.TOKEN_REFUSED, by=by, outcome=Outcome.DENIED, subject=by.token_id, reason=reason
        )


def _is_recorded(by: Actor) -> bool:
    recent = AuditRecord.objects.filter(
        organization=by.organization,
        subject=by.token_id,
        occurred_at__gt=timezone.now() - RECORD_INTERVAL,
    )
    return recent.filter(code=Event.TOKEN_REFUSED).exists()
