"""Canonical JSON: write a value as bytes, so that two hashes of one value are equal (RFC 8785).

Beyond RFC 8785 an integer that no double represents is written with all its digits: the identifier
1917043659912705296 stays that number.
"""

import hashlib
from decimal import Decimal
from typing import Any

import orjson
import rfc8785

_SAFE_INTEGER = 2**53 - 1
_LEAST_PLAIN, _LEAST_EXPONENT = 1e-4, 1e15  # between them all writers agree on a float


def dumps(value: Any) -> bytes:
    """The canonical form. A whole number beyond 2^53 is written as the double of the same digits,
    where there is one, else with its own digits.

    Nearly all values take the fast path: orjson writes values with plain keys and numbers
    identically, seventy times as fast.
    """
    try:
        return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS)
    except (_NotPlain, orjson.JSONEncodeError):
        return _dump_rfc8785(value)


def commitment(value: Any, salt: bytes = b"") -> str:
    """The SHA-256 of a JSON value in its canonical form, behind a salt where one is given."""
    return hashlib.sha256(salt + dumps(value)).hexdigest()


class _NotPlain(Exception):
    pass


def _plain(value: Any) -> Any:
    """The value as orjson writes it canonically. Raises `_NotPlain` where it would not."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, int) and abs(value) <= _SAFE_INTEGER:
        return value
    if isinstance(value, float):
        return _number(value)
    raise _NotPlain


def _key(key: Any) -> str:
    if not isinstance(key, str) or not key.isascii():
        raise _NotPlain  # beyond ASCII the two sort differently
    return key


def _number(value: float) -> float | int:
    size = abs(value)
    if size == 0:
        return 0
    if not _LEAST_PLAIN <= size < _LEAST_EXPONENT:
        raise _NotPlain
    return int(value) if value.is_integer() else value


def _dump_rfc8785(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return _dump_exact_integers(value)


def _dump_exact_integers(value: Any) -> bytes:
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: str(pair[0]).encode("utf-16-be"))
        members = (rfc8785.dumps(key) + b":" + _dump_exact_integers(item) for key, item in pairs)
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_dump_exact_integers, value)) + b"]"
    large = isinstance(value, int) and abs(value) > _SAFE_INTEGER
    return _integer(value) if large else rfc8785.dumps(value)


def _integer(value: int) -> bytes:
    """PostgreSQL returns 1e22 as a whole number; both are written as the same double."""
    try:
        double = float(value)
    except OverflowError:
        return str(value).encode()
    return rfc8785.dumps(double) if Decimal(repr(double)) == value else str(value).encode()
