"""Writing evidence. Call it inside the transaction whose deed it records: both or neither."""

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.conf import settings
from uuid_utils.compat import uuid7

from audit import leaves, payloads
from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.redaction import Redactor
from audit.rows import as_json_text, insert


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it, in text."""

    kind: str
    name: str
    organization: str
    id: str = ""
    token_id: str = ""
    source_ip: str = ""
    request_id: str = ""


def record(
    event: Event,
    *,
    by: Actor,
    outcome: Outcome,
    subject: str = "",
    digest: str = "",
    reason: str = "",
    execution_id: UUID | None = None,
    details: dict[str, Any] | None = None,
    payload: dict[str, Any] | None = None,
) -> UUID:
    """Append one record; its id. Both `details` and `payload` are redacted here, so that no caller
    can forget it.

    `payload` is what went in or came out, by part: it is kept apart, encrypted and erasable, and
    the record says `<part>_commitment` of what it was before it was redacted.
    """
    redactor = _redactor(by.organization)
    said = redactor.clean(details or {})
    record_id = uuid7()
    if payload:
        salt, commitments = payloads.commit(payload)
        said |= commitments
        payloads.keep(record_id, by.organization, salt, redactor.clean(payload))
    values: dict[str, Any] = {
        "id": record_id,
        "organization": by.organization,
        "code": str(event),
        "outcome": str(outcome),
        "reason": reason[:80],
        "actor_kind": str(by.kind),
        "actor": by.name[:200],
        "actor_id": by.id,
        "token_id": by.token_id,
        "subject": subject[:200],
        "subject_digest": digest,
        "execution_id": execution_id,
        "request_id": by.request_id,
        "source_ip": by.source_ip,
    }
    text = leaves.details_of(said)
    mac = leaves.mac_of(by.organization, leaves.body_of(values, text))
    insert(AuditRecord, values | {"details": as_json_text(text), "mac": mac})
    return record_id


@lru_cache(maxsize=256)
def _redactor(organization: str) -> Redactor:
    secret = settings.SECRET_KEY.encode()
    return Redactor(hmac.new(secret, f"redaction:{organization}".encode(), hashlib.sha256).digest())
