"""Encodes a grant as an identifier for URLs: the same grant always has the same identifier."""

import base64
import binascii
import json

from tools.definitions.values import strict_json
from tools.models.permission import GrantRow

_LONGEST = 2_000


def grant_id(row: GrantRow) -> str:
    return base64.urlsafe_b64encode(json.dumps(row).encode()).decode().rstrip("=")


def read_grant_id(text: str) -> GrantRow | None:
    """The grant it names, held or not; None for an id of another form."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        parts = strict_json.parse(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, UnicodeError, strict_json.BadJson):
        return None
    named = isinstance(parts, list) and len(parts) == len(GrantRow._fields)
    if len(text) > _LONGEST or not named or not all(isinstance(part, str) for part in parts):
        return None
    return GrantRow(*parts)
