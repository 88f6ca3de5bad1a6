"""The base class of a service, whose author writes one class with one method, and the signed
announcement of a service.

The signature is over the bytes that are sent, so no canonical form is needed. An administrator
approves an announcement by its digest.
"""

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcrib_service.queue_protocol import announcements_key

type Answer = Any | Iterator[Any] | Awaitable[Any] | AsyncIterator[Any]
MOST_CHARACTERS = 256 * 1024  # characters of an announcement
_MOST_UNREAD = 1_000  # announcements that were not read yet
_SIGNATURE_PREFIX = b"toolcrib service announcement\n"


class ToolFailed(Exception):
    """The one failure whose message reaches the caller. Any other exception is only logged here."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class DynamicToolService:
    """Override `invoke`. The attributes say what the service is called and where it listens.

    `tools`, `default_groups` and `config_params` are what it announces of itself, in the form of
    specification S2; a service that an administrator registers needs none of them.
    """

    id: str = ""
    request_queue: str = ""
    response_queue: str = ""
    config_params: Sequence[dict[str, Any]] = ()
    tools: Sequence[dict[str, Any]] = ()
    default_groups: Sequence[str] | None = None

    def invoke(self, user: str, config: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """The answer, or chunks of it: return or yield, in a plain or an async function.

        What is no text becomes JSON text. `config` is what the tool's definition says, never what
        a model said.
        """
        raise NotImplementedError

    def descriptor(self) -> dict[str, Any]:
        """Of specification S2."""
        return {
            "id": self.id,
            "request-queue": self.requests_name(),
            "response-queue": self.response_queue or f"non-persistent://tg/response/{self.id}",
            "config-params": [dict(one) for one in self.config_params],
        }

    def requests_name(self) -> str:
        return self.request_queue or f"non-persistent://tg/request/{self.id}"


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
        return announcement_digest(self.document)

    def publish(self, connection: Any) -> None:
        fields = {
            "document": self.document,
            "key": self.key,
            "signature": base64.b64encode(self.sign(signed_bytes(self.document))).decode(),
        }
        place = announcements_key(self.organization)
        connection.xadd(place, fields, maxlen=_MOST_UNREAD, approximate=True)


def signed_bytes(document: str) -> bytes:
    """What is signed for a document."""
    return _SIGNATURE_PREFIX + document.encode()


def announcement_digest(document: str) -> str:
    return "sha256:" + hashlib.sha256(document.encode()).hexdigest()


def make_announcer(service: DynamicToolService, *, organization: str, key_file: Path) -> Announcer:
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
