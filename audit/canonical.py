"""One way to write a value as bytes, so that two hashes of one value are the same."""

import hashlib
from typing import Any

import rfc8785


def commitment(value: Any) -> str:
    """The SHA-256 of a JSON value in its canonical form (RFC 8785)."""
    try:
        canonical = rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        canonical = rfc8785.dumps(_as_doubles(value))
    return hashlib.sha256(canonical).hexdigest()


def _as_doubles(value: Any) -> Any:
    """PostgreSQL gives 1e22 back as a whole number; to RFC 8785 both are the same double."""
    if isinstance(value, dict):
        return {key: _as_doubles(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_doubles(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole else value
