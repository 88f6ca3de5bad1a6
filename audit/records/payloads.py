"""Payloads: inputs and outputs, encrypted under a key of their organization, and erasable.

A record holds salted commitments to it. With the payload an investigator can show that it is what
was committed to; without it the payload cannot be guessed, and the record still verifies.
"""

import hashlib
import hmac
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import connection, transaction

from audit import canonical
from audit.log import key_files
from audit.models import AuditKey, AuditPayload
from audit.shared_files import sync_directory

_NONCE_BYTES = 12
_SALT_BYTES = 16
_WORD = re.compile(r"[^\W_]+")
_MARK_BYTES = 8
_MOST_WORDS = 64
_LONGEST_WORD = 64
_CACHE_S = 5.0
DIRECTORY = "payloads"  # of one key per organization, below `KEYS_DIR`
FORMER = "payload-"  # with which their names began when they had no directory
_PLAIN = re.compile(r"[a-z0-9-]{1,63}")


class PayloadErased(Exception):
    """The payload is no longer there, or no longer opens."""


@dataclass(frozen=True, slots=True)
class _PayloadKey:
    """An organization's: what seals its payloads, and what hides the words to be searched for."""

    cipher: AESGCM
    words: bytes

    @classmethod
    def from_secret(cls, secret: bytes) -> "_PayloadKey":
        return cls(AESGCM(secret), hmac.digest(secret, b"words", hashlib.sha256))

    def seal(self, record_id: UUID, plain: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self.cipher.encrypt(nonce, plain, record_id.bytes)

    def mark(self, word: str) -> bytes:
        return hmac.digest(self.words, word.lower().encode(), hashlib.sha256)[:_MARK_BYTES]


_keys: dict[str, tuple[float, _PayloadKey]] = {}


def commit(payload: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """A new salt, and for each part its commitment as a record's details say it."""
    salt = os.urandom(_SALT_BYTES)
    return salt, {
        f"{name}_commitment": "sha256:" + canonical.commitment(part, salt)
        for name, part in payload.items()
    }


def payload_row(
    record_id: UUID, organization: str, salt: bytes, redacted: dict[str, Any]
) -> dict[str, Any]:
    """What is written of it with its record, in the same transaction."""
    key = _existing_or_new_key(organization)
    # Not in its canonical form, which knows no 1e16 but 10000000000000000.
    plain = json.dumps({"salt": salt.hex(), "payload": redacted}, allow_nan=False).encode()
    return {
        "record_id": record_id,
        "organization": organization,
        "sealed": key.seal(record_id, plain),
        "words": [*{key.mark(word) for word in _words(redacted)}],
    }


def open_payload(record_id: UUID) -> dict[str, Any]:
    """`{"salt": hex, "payload": …}`. Raises `PayloadErased`; LookupError for no payload."""
    row = AuditPayload.objects.filter(pk=record_id).first()
    if row is None:
        raise LookupError("the record has no payload")
    if row.sealed is None:
        raise PayloadErased(f"erased on {row.erased_at:%Y-%m-%d} by {row.erased_by}")
    sealed, key = bytes(row.sealed), _existing_key(row.organization)
    if key is None:
        raise PayloadErased("the organization's key was erased")
    try:
        plain = key.cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], record_id.bytes)
    except InvalidTag:
        raise PayloadErased("it was sealed under another key, or changed since") from None
    opened: dict[str, Any] = json.loads(plain)  # orjson makes a double of what has 65 bits
    return opened


def word_mark(organization: str, word: str) -> bytes:
    """The keyed hash of a word in the search index: it can be searched only with the word. There is
    none for an organization without a key."""
    key = _existing_key(organization)
    return key.mark(word) if key else b""


def erase_key(organization: str) -> None:
    """Nothing that was sealed until now opens again, even after a restore of the database."""
    file = _key_file(organization)
    file.unlink(missing_ok=True)
    sync_directory(file.parent)
    AuditKey.objects.filter(pk=organization).delete()
    _keys.pop(organization, None)


def _words(value: Any) -> set[str]:
    words: set[str] = set()
    _collect_words(value, words)
    return words


def _collect_words(value: Any, words: set[str]) -> None:
    if len(words) >= _MOST_WORDS:
        return
    if isinstance(value, dict):
        for item in value.values():
            _collect_words(item, words)
    elif isinstance(value, list):
        for item in value:
            _collect_words(item, words)
    elif isinstance(value, str):
        for found in _WORD.finditer(value.lower()):
            if len(words) >= _MOST_WORDS:
                return
            words.add(found.group()[:_LONGEST_WORD])
    elif isinstance(value, int | float) and not isinstance(value, bool):
        words.add(str(value))


def _existing_key(organization: str) -> _PayloadKey | None:
    """None where it was erased, or there never was one; one that was replaced is used for
    `_CACHE_S` more at most."""
    known = _keys.get(organization)
    if known is not None and known[0] > time.monotonic():
        return known[1]
    secret = _unwrap_secret(organization)
    return _cache_key(organization, secret) if secret else None


def _existing_or_new_key(organization: str) -> _PayloadKey:
    return _existing_key(organization) or _cache_key(organization, _new_secret(organization))


def _cache_key(organization: str, secret: bytes) -> _PayloadKey:
    key, until = _PayloadKey.from_secret(secret), time.monotonic() + _CACHE_S
    # Not before: a key whose transaction is undone was never there.
    transaction.on_commit(lambda: _keys.update({organization: (until, key)}))
    return key


def _unwrap_secret(organization: str) -> bytes | None:
    """None also for a row of a backup, whose file was erased since."""
    row = AuditKey.objects.filter(pk=organization).first()
    file = _key_file(organization)
    if row is None or not file.exists():
        return None
    wrapped = bytes(row.wrapped)
    try:
        return AESGCM(file.read_bytes()).decrypt(
            wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], organization.encode()
        )
    except InvalidTag:
        return None


@transaction.atomic
def _new_secret(organization: str) -> bytes:
    """Replaces a row that does not open. Two at once make one: the second finds the first one's."""
    with connection.cursor() as cursor:
        lock = f"toolcrib:payload-key:{organization}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [lock])
    secret = _unwrap_secret(organization)
    if secret is not None:
        return secret
    useless = AuditKey.objects.filter(pk=organization)
    if useless.exists():
        useless.delete()
    AuditKey.objects.create(organization=organization, wrapped=_wrap_new_secret(organization))
    secret = _unwrap_secret(organization)
    if secret is None:
        raise LookupError(f"the key of {organization} was made and is not there")
    return secret


def _wrap_new_secret(organization: str) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    outer = key_files.read_or_make(str(_key_file(organization)), lambda: AESGCM.generate_key(256))
    return nonce + AESGCM(outer).encrypt(nonce, AESGCM.generate_key(256), organization.encode())


def _key_file(organization: str) -> Path:
    """Outside the database, so that erasing it erases what backups of the database hold."""
    plain = _PLAIN.fullmatch(organization) is not None
    name = organization if plain else hashlib.sha256(organization.encode()).hexdigest()
    former = key_files.path_of(f"{FORMER}{name}.key")  # `manage.py up` moves them
    return former if former.exists() else key_files.path_of(f"{DIRECTORY}/{name}.key")
