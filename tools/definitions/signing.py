"""Ed25519 signatures of tool versions: only what was written here runs."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from audit import shared_files


class PrivateSigningKey:
    """A key that signs. `key_id` is the beginning of the public key's hash."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = public_key_id(self.public)

    @classmethod
    def new(cls) -> "PrivateSigningKey":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_hex(cls, text: str) -> "PrivateSigningKey":
        """Raises `ValueError`."""
        return cls(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text)))

    def as_hex(self) -> str:
        """The secret itself: encrypt it at once."""
        return self._private.private_bytes_raw().hex()

    @classmethod
    def from_file(cls, path: Path) -> "PrivateSigningKey":
        """The key in `path`; made there on first use, readable by its owner only."""
        if not path.exists():
            _write_new_key(path)
        private = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"{path} does not hold an Ed25519 private key.")
        return cls(private)

    def sign(self, statement: dict[str, Any]) -> str:
        return base64.b64encode(self._private.sign(rfc8785.dumps(statement))).decode("ascii")

    def verifies(self, statement: dict[str, Any], signature: str, key_id: str) -> bool:
        return key_id == self.key_id and verify_statement(self.public, statement, signature)


def public_key_id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def verify_statement(public: bytes, statement: dict[str, Any], signature: str) -> bool:
    """Also false for an invalid key or signature."""
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(base64.b64decode(signature, validate=True), rfc8785.dumps(statement))
    except (InvalidSignature, ValueError):
        return False
    return True


def version_statement(
    *, organization: str, name: str, number: int, label: str, digest: str
) -> dict[str, Any]:
    """The statement that is signed: the definition is that version of that tool in that
    organization."""
    return {
        "organization": organization,
        "name": name,
        "number": number,
        "version": label,
        "digest": digest,
    }


def _write_new_key(path: Path) -> None:
    shared_files.make_directory(path.parent)
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = shared_files.open_to_write(draft, os.O_WRONLY | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as out:
        out.write(pem)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first; its key is the one
    finally:
        draft.unlink()
