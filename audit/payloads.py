"""What went in or came out, encrypted under a key of its organization's, and erasable.

A record holds salted commitments to it. With the payload an investigator can show that it is what
was committed to; without it nobody can guess what it was, and the record still verifies.
"""

import hashlib
import hmac
import os
import re
import time
from typing import Any
from uuid import UUID

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import transaction

from audit import canonical, keyfile
from audit.models import AuditKey, AuditPayload
from audit.rows import insert

_NONCE_BYTES = 12
_SALT_BYTES = 16
_WORD = re.compile(r"[^\W_]+")
_MARK_BYTES = 8
_MOST_WORDS = 64
_LONGEST_WORD = 64
_KEPT_S = 5.0
_keys: dict[str, tuple[float, bytes]] = {}


class Erased(Exception):
    """The payload is no longer there, or no longer opens."""


def commit(payload: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """A new salt, and for each part its commitment as a record's details say it."""
    salt = os.urandom(_SALT_BYTES)
    return salt, {
        f"{name}_commitment": "sha256:" + canonical.commitment(part, salt)
        for name, part in payload.items()
    }


def keep(record_id: UUID, organization: str, salt: bytes, redacted: dict[str, Any]) -> None:
    """In the transaction of the record."""
    plain = canonical.dumps({"salt": salt.hex(), "payload": redacted})
    insert(
        AuditPayload,
        {
            "record_id": record_id,
            "organization": organization,
            "sealed": _seal(_key(organization), record_id, plain),
            "words": list(_marks(organization, redacted)),
        },
    )


def opened(record_id: UUID) -> dict[str, Any]:
    """`{"salt": hex, "payload": …}`. Raises `Erased`; LookupError where there never was one."""
    row = AuditPayload.objects.filter(pk=record_id).first()
    if row is None:
        raise LookupError("the record has no payload")
    if row.sealed is None:
        raise Erased(f"erased on {row.erased_at:%Y-%m-%d} by {row.erased_by}")
    sealed = bytes(row.sealed)
    cipher = AESGCM(_key(row.organization))
    try:
        plain = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], record_id.bytes)
    except InvalidTag:
        raise Erased("it was sealed under another key, or changed since") from None
    opened: dict[str, Any] = orjson.loads(plain)
    return opened


def mark(organization: str, word: str) -> bytes:
    """What stands in the index for a word: to be searched for by whoever knows the word."""
    key = keyfile.derived("words", organization)
    return hmac.digest(key, word.lower().encode(), hashlib.sha256)[:_MARK_BYTES]


def _marks(organization: str, value: Any) -> set[bytes]:
    words: set[str] = set()
    _collect(value, words)
    return {mark(organization, word) for word in words}


def _collect(value: Any, words: set[str]) -> None:
    if len(words) >= _MOST_WORDS:
        return
    if isinstance(value, dict):
        for item in value.values():
            _collect(item, words)
    elif isinstance(value, list):
        for item in value:
            _collect(item, words)
    elif isinstance(value, str):
        for found in _WORD.finditer(value.lower()):
            if len(words) >= _MOST_WORDS:
                return
            words.add(found.group()[:_LONGEST_WORD])
    elif isinstance(value, int | float) and not isinstance(value, bool):
        words.add(str(value))


def _seal(key: bytes, record_id: UUID, plain: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, record_id.bytes)


def _key(organization: str) -> bytes:
    """The organization's key; one that was replaced is used for `_KEPT_S` more at most."""
    known = _keys.get(organization)
    if known is not None and known[0] > time.monotonic():
        return known[1]
    key = _read_key(organization) or _new_key(organization)
    until = time.monotonic() + _KEPT_S
    # Not before: a key whose transaction is undone was never there.
    transaction.on_commit(lambda: _keys.update({organization: (until, key)}))
    return key


def _read_key(organization: str) -> bytes | None:
    row = AuditKey.objects.filter(pk=organization).first()
    if row is None:
        return None
    wrapped = bytes(row.wrapped)
    return _wrapping(organization).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], None)


def _new_key(organization: str) -> bytes:
    """Two at once make one: the first one's stands."""
    made = AuditKey(organization=organization, wrapped=_wrapped(organization))
    AuditKey.objects.bulk_create([made], ignore_conflicts=True)
    key = _read_key(organization)
    if key is None:
        raise LookupError(f"the key of {organization} was made and is not there")
    return key


def _wrapped(organization: str) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _wrapping(organization).encrypt(nonce, AESGCM.generate_key(256), None)


def _wrapping(organization: str) -> AESGCM:
    return AESGCM(keyfile.derived("payload key", organization))
