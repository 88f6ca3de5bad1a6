"""Writing evidence. Call it inside the transaction whose deed it records: both or neither."""

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.conf import settings
from uuid_utils.compat import uuid7

from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.redaction import Redactor
from audit.rows import as_json, insert


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
) -> None:
    """Append one record. `details` is redacted here, so that no caller can forget it."""
    insert(
        AuditRecord,
        {
            "id": uuid7(),
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
            "details": as_json(_redactor(by.organization).clean(details or {})),
        },
    )


@lru_cache(maxsize=256)
def _redactor(organization: str) -> Redactor:
    secret = settings.SECRET_KEY.encode()
    return Redactor(hmac.new(secret, f"redaction:{organization}".encode(), hashlib.sha256).digest())
