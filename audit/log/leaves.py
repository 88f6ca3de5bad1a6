"""The leaf of a record: the exact line of canonical JSON that is sealed.

    {"mac": "…", "occurred_at": "2026-01-31T12:00:00.123456Z", "record": {…}}

`record` is what Python wrote and made the mac over. The database writes the same line, byte for
byte, so that sealing and verifying read text and build no objects.
"""

import hmac
from hashlib import sha256
from typing import Any

import orjson

from audit import canonical
from audit.log import key_files

# In the order in which RFC 8785 sorts them.
COLUMNS = (
    "actor",
    "actor_id",
    "actor_kind",
    "code",
    "details",
    "execution_id",
    "id",
    "organization",
    "outcome",
    "reason",
    "request_id",
    "source_ip",
    "subject",
    "subject_digest",
    "token_id",
)


def record_body(values: dict[str, Any], details: bytes) -> bytes:
    """The canonical JSON of a record's columns; `details` is canonical already."""
    shown = {name: values[name] for name in COLUMNS if name != "details"}
    body: dict[str, Any] = {name: shown.get(name) for name in COLUMNS}
    body["details"] = orjson.Fragment(details)
    return orjson.dumps(body)


def record_mac(organization: str, body: bytes) -> bytes:
    """An attacker who can only write to the database cannot make this."""
    return hmac.digest(key_files.derived_key("record", organization), body, sha256)


def position_mac(log: str, index: int, leaf_hash: bytes) -> bytes:
    """Binds a leaf to its position, so that verification can say which leaf was moved."""
    place = index.to_bytes(8, "big") + leaf_hash
    return hmac.digest(key_files.derived_key("place", log), place, sha256)


def leaf_line(body: bytes, mac: bytes, occurred_at: str) -> bytes:
    return b'{"mac":"%b","occurred_at":"%b","record":%b}' % (
        mac.hex().encode(),
        occurred_at.encode(),
        body,
    )


def canonical_details(details: dict[str, Any]) -> bytes:
    return canonical.dumps(details)


def _column_sql(alias: str, name: str) -> str:
    """A column as canonical JSON text; `to_json` escapes a string as RFC 8785 does."""
    column = f"{alias}.{name}"
    if name == "details":
        return f"{column}::text"
    if name == "execution_id":
        return f"coalesce(to_json({column})::text, 'null')"
    return f"to_json({column})::text"


def body_sql(alias: str) -> str:
    """A record's body as an SQL text expression over the table of that alias."""
    members = (f"'\"{name}\":' || {_column_sql(alias, name)}" for name in COLUMNS)
    return "'{' || " + " || ',' || ".join(members) + " || '}'"


def moment_sql(alias: str) -> str:
    """`occurred_at` as a line says it."""
    return f"to_char({alias}.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
