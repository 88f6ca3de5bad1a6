"""The announcement of a service, signed with its own key.

The signature is over the bytes that are sent, so no canonical form is needed. An administrator
approves an announcement by its digest.
"""

import base64
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcrib_service.service import DynamicToolService
from toolcrib_service.wire import announcements

MOST = 256 * 1024  # characters of an announcement
_KEPT = 1_000  # announcements that were not read yet
_SIGNED = b"toolcrib service announcement\n"


def statement(document: str) -> bytes:
    """What is signed for a document."""
    return _SIGNED + document.encode()


def digest_of(document: str) -> str:
    return "sha256:" + hashlib.sha256(document.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Announcer:
    """`sign` gives the Ed25519 signature of bytes; `key` is the public key, in base64."""

    document: str
    organization: str
    key: str
    sign: Callable[[bytes], bytes]
    every_s: float = 30.0

    @property
    def digest(self) -> str:
        return digest_of(self.document)

    def publish(self, connection: Any) -> None:
        fields = {
            "document": self.document,
            "key": self.key,
            "signature": base64.b64encode(self.sign(statement(self.document))).decode(),
        }
        place = announcements(self.organization)
        connection.xadd(place, fields, maxlen=_KEPT, approximate=True)


def announcer(service: DynamicToolService, *, organization: str, key_file: Path) -> Announcer:
    """For the service with the key in `key_file`, which is made on first use. Raises `ImportError`
    without `cryptography`, which only announcing needs."""
    private = _private_key(key_file)
    groups = service.default_groups
    said = {
        "organization": organization,
        "service": service.descriptor(),
        "groups": None if groups is None else list(groups),
        "tools": [dict(one) for one in service.tools],
    }
    document = json.dumps(said, sort_keys=True, ensure_ascii=True, allow_nan=False)
    public = base64.b64encode(private.public_key().public_bytes_raw()).decode()
    return Announcer(document, organization, public, private.sign)


def _private_key(path: Path) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - optional
        Ed25519PrivateKey,
    )

    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except FileNotFoundError:
        private = Ed25519PrivateKey.generate()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(private.private_bytes_raw())
    return private
