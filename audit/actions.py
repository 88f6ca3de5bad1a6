"""Append audit records. Call it inside the transaction of the action it records: both or neither.

The entry point and client program of a request are set once per request, and are in every record of
it; `difference` describes a change for a record's details.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from django.conf import settings
from django.db import DatabaseError, IntegrityError
from uuid_utils.compat import uuid7

from audit.errors import Unwritable
from audit.events import Event, Outcome
from audit.inserts import InsertRow, insert_rows, json_text
from audit.log import leaves
from audit.models import AuditPayload, AuditRecord
from audit.records import payloads
from audit.redaction import Redactor

_LONGEST_USER_AGENT = 200
_source: ContextVar[dict[str, Any] | None] = ContextVar("audit_source", default=None)
_ABSENT = object()
_JSON_TYPES = frozenset({type(None), bool, int, float, str})


def set_source(transport: str, user_agent: str = "", client_request_id: str = "") -> None:
    """For all that this thread records from now on, until it is set again."""
    plain = user_agent.replace("\x00", "")[:_LONGEST_USER_AGENT].encode("utf-8", "replace").decode()
    named = {"user_agent": plain, "client_request_id": client_request_id}
    _source.set({"transport": transport} | {name: value for name, value in named.items() if value})


def clear_source() -> None:
    _source.set(None)


def source() -> dict[str, Any] | None:
    return _source.get()


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor, as text."""

    kind: str
    name: str
    organization: str
    id: str = ""
    token_id: str = ""
    source_ip: str = ""
    request_id: str = ""
    made_by: str = ""  # the user who impersonates the actor, if any


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
    sensitive: frozenset[str] = frozenset(),
    into: list[InsertRow] | None = None,
) -> UUID:
    """Append one record; its id. Both `details` and `payload` are redacted here, so that no caller
    can forget it. A user who impersonates the actor is named in `details` as `made_by`.

    `payload` is the input or output, by part: it is stored apart, encrypted and erasable, and the
    record has a `<part>_commitment` to its value before redaction. `sensitive` are names of members
    that are redacted like secrets. With `into`, the record's rows are appended there: the caller
    writes them, by `insert_with_evidence` or in a statement of its own.

    Raises `Unwritable`, also where keys cannot be read or are not those of the database: the caller
    must not perform the action then.
    """
    redactor = redactor_of(by.organization)
    said = redactor.clean((details or {}) | _common_details(by))
    record_id = uuid7()
    kept = None
    if payload:
        salt, commitments = payloads.commit(payload)
        said |= commitments
        kept = salt, redactor.clean(payload, sensitive)
    values = _actor_columns(by) | {
        "id": record_id,
        "code": str(event),
        "outcome": str(outcome),
        "reason": reason[:80],
        # A name from a URL may contain NUL, which no column accepts.
        "subject": subject.replace("\x00", "\ufffd")[:200],
        "subject_digest": digest,
        "execution_id": execution_id,
    }
    text = leaves.canonical_details(said)
    try:
        mac = leaves.record_mac(by.organization, leaves.record_body(values, text))
        rows: list[InsertRow] = [(AuditRecord, values | {"details": json_text(text), "mac": mac})]
        if kept is not None:
            payload_row = payloads.payload_row(record_id, by.organization, *kept)
            rows.append((AuditPayload, payload_row))
        if into is None:
            insert_rows(*rows)
        else:
            into += rows
    except (DatabaseError, InvalidTag, OSError, ValueError) as error:
        raise Unwritable(f"the audit record {event} cannot be written") from error
    return record_id


def _actor_columns(by: Actor) -> dict[str, Any]:
    return {
        "organization": by.organization,
        "actor_kind": str(by.kind),
        "actor": by.name[:200],
        "actor_id": by.id,
        "token_id": by.token_id,
        "request_id": by.request_id,
        "source_ip": by.source_ip,
    }


def insert_with_evidence(*rows: InsertRow) -> None:
    """Rows of an action and of its records, by one statement: all or none.

    Raises `Unwritable` where evidence cannot be written, and `IntegrityError` of other rows.
    """
    with writing_evidence():
        insert_rows(*rows)


@contextmanager
def writing_evidence() -> Iterator[None]:
    """For a statement that writes records beside other rows. Raises `Unwritable` in place of what
    the database refuses; an `IntegrityError` of another table stays what it is."""
    try:
        yield
    except IntegrityError as error:
        table = getattr(getattr(error.__cause__, "diag", None), "table_name", None) or ""
        if table.startswith("audit_"):
            raise Unwritable("the audit record cannot be written") from error
        raise
    except DatabaseError as error:
        raise Unwritable("the audit record cannot be written") from error


@lru_cache(maxsize=256)
def redactor_of(organization: str) -> Redactor:
    secret = settings.SECRET_KEY.encode()
    return Redactor(hmac.new(secret, f"redaction:{organization}".encode(), hashlib.sha256).digest())


def difference(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """`{"before": …, "after": …}` of the values that differ, as plain JSON. None is for a value
    that was absent before, or is absent now."""
    was, now = dict(before or {}), dict(after or {})
    changed = [name for name in was | now if was.get(name, _ABSENT) != now.get(name, _ABSENT)]
    return {
        "before": {name: as_json_value(was[name]) for name in changed if name in was},
        "after": {name: as_json_value(now[name]) for name in changed if name in now},
    }


def as_json_value(value: Any) -> Any:
    """As JSON: sets are sorted, and values without a JSON type become text."""
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, Mapping):
        return {str(name): as_json_value(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    if isinstance(value, list | tuple):
        return [as_json_value(item) for item in value]
    return str(value)


def _common_details(by: Actor) -> dict[str, Any]:
    """The details that every record has, where they are known."""
    said = {"source": source(), "made_by": by.made_by}
    return {name: text for name, text in said.items() if text}


def record_change(
    event: Event,
    subject: str,
    by: Actor,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    digest: str = "",
    **more: Any,
) -> UUID:
    """Append the record of a change: the values that differ, and `more` in its details."""
    details = {**difference(before, after), **more}
    return record(
        event, by=by, outcome=Outcome.CHANGED, subject=subject, digest=digest, details=details
    )
