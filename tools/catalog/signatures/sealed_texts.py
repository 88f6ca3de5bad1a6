"""Encryption of values in the database: AES-256-GCM under a key derived from SECRET_KEY.

Each organization has its own key, and a value is bound to its row: copied to another row or
organization, it cannot be decrypted.
"""

import os
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

_FORM = b"\x01"
_NONCE_BYTES = 12
_PURPOSE = b"toolcrib egress credential"
MCP = b"toolcrib mcp credential"
MESSAGES = b"toolcrib message channel"
SIGNING = b"toolcrib signing key"
AUTHENTICATOR = b"toolcrib authenticator app"
IMPORT = b"toolcrib import that waits for a word"


class UnreadableSealedText(Exception):
    """Sealed under another SECRET_KEY, or not what was sealed here."""


def seal(value: str, *, organization: UUID, row: UUID, purpose: bytes = _PURPOSE) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return _FORM + nonce + _cipher(organization, purpose).encrypt(nonce, value.encode(), row.bytes)


def unseal(sealed: bytes, *, organization: UUID, row: UUID, purpose: bytes = _PURPOSE) -> str:
    """The value. Raises `UnreadableSealedText`."""
    form, nonce, body = sealed[:1], sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
    if form != _FORM:
        raise UnreadableSealedText
    try:
        return _cipher(organization, purpose).decrypt(nonce, body, row.bytes).decode()
    except (InvalidTag, ValueError):
        raise UnreadableSealedText from None


def _cipher(organization: UUID, purpose: bytes) -> AESGCM:
    derivation = HKDF(SHA256(), 32, salt=organization.bytes, info=purpose)
    return AESGCM(derivation.derive(settings.SECRET_KEY.encode()))
