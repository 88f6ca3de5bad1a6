"""One way to write a value as bytes, so that two hashes of one value are the same."""

import hashlib
from typing import Any

import rfc8785


def commitment(value: Any) -> str:
    """The SHA-256 of a JSON value in its canonical form (RFC 8785)."""
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()
