"""Signed statements of a log's size and root, in the forms of C2SP. Pure.

A checkpoint is `origin, size, root` and lines of ours, as a signed note: the time, and where a
person let the log go on over a break, who and why.
https://c2sp.org/tlog-checkpoint, https://c2sp.org/signed-note. Several signatures may be below one
text, for key rotation and witnesses.
"""

import base64
import hashlib
import json
from binascii import Error as BadBase64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_ED25519 = b"\x01"
_DASH = "\u2014"
_MOST_DIGITS = 18


class BadNote(Exception):
    """Not a checkpoint; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """That a person let a log go on although it was not what was published of it."""

    by: str
    reason: str
    problem: str

    @property
    def line(self) -> str:
        return f"accepted {json.dumps(asdict(self))}\n"


@dataclass(frozen=True, slots=True)
class CheckpointStatement:
    origin: str
    size: int
    root: bytes
    at: datetime
    accepted: Acceptance | None = None

    @property
    def text(self) -> str:
        root = base64.b64encode(self.root).decode()
        moment = self.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        text = f"{self.origin}\n{self.size}\n{root}\ntime {moment}\n"
        return text + (self.accepted.line if self.accepted else "")


@dataclass(frozen=True, slots=True)
class Signer:
    """A key and the name it signs under."""

    name: str
    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    @property
    def key_id(self) -> str:
        return key_id(self.name, self.public)

    def line(self, text: str) -> str:
        signature = bytes.fromhex(self.key_id) + self.private.sign(text.encode())
        return f"{_DASH} {self.name} {base64.b64encode(signature).decode()}\n"


def key_id(name: str, public: bytes) -> str:
    """Eight hexadecimal digits: the key hash of a signed note."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4].hex()


def verifier_key(name: str, public: bytes) -> str:
    """The public key as a signed note's reader is given it: name, hash and key."""
    return f"{name}+{key_id(name, public)}+{base64.b64encode(_ED25519 + public).decode()}"


def sign_statement(statement: CheckpointStatement, *signers: Signer) -> str:
    """The note. It needs one signer at least."""
    text = statement.text
    return text + "\n" + "".join(signer.line(text) for signer in signers)


def read_note(note: str) -> CheckpointStatement:
    """What a note states, without checking signatures. Raises `BadNote`."""
    text, mark, _ = note.partition("\n\n")
    lines = text.split("\n")
    if not mark or len(lines) not in (4, 5) or not lines[3].startswith("time "):
        raise BadNote("it does not have the lines of a checkpoint")
    if not lines[1].isdecimal() or len(lines[1]) > _MOST_DIGITS:
        raise BadNote("its size is no number")
    try:
        root = base64.b64decode(lines[2], validate=True)
        moment = datetime.strptime(lines[3][5:], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except (BadBase64, ValueError):
        raise BadNote("its root or its time cannot be read") from None
    if len(root) != 32:
        raise BadNote("its root is not 32 bytes")
    statement = CheckpointStatement(
        lines[0], int(lines[1]), root, moment, _parse_acceptance(lines[4:])
    )
    if statement.text != text + "\n":
        raise BadNote("it is written in another way than Toolcrib writes")
    return statement


def signed_by(note: str, keys: Mapping[str, bytes]) -> list[str]:
    """The ids of those of `keys` (public, by key id) that have a valid signature below.

    An invalid signature by one of them raises `BadNote`: it is a forgery.
    """
    text, mark, below = note.partition("\n\n")
    if not mark:
        raise BadNote("it is not signed")
    signed = (text + "\n").encode()
    good = []
    for line in below.splitlines():
        name, key, signature = _parse_signature(line)
        public = keys.get(key)
        if public is None or key_id(name, public) != key:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
        except InvalidSignature:
            raise BadNote(f"its signature by {key} is not good") from None
        good.append(key)
    return good


def _parse_acceptance(lines: list[str]) -> Acceptance | None:
    if not lines:
        return None
    try:
        return Acceptance(**json.loads(lines[0].removeprefix("accepted ")))
    except (ValueError, TypeError, RecursionError):
        raise BadNote("what it says of a break cannot be read") from None


def _parse_signature(line: str) -> tuple[str, str, bytes]:
    """The claimed signer, by name and by key, and the signature."""
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != _DASH:
        raise BadNote("a line below the text is no signature")
    try:
        raw = base64.b64decode(parts[2], validate=True)
    except (BadBase64, ValueError):
        raise BadNote("a signature is not base64") from None
    return parts[1], raw[:4].hex(), raw[4:]
