"""Who signs checkpoints: the keys of this installation, in files outside the database.

While a key is being replaced there are two, and the next checkpoint of every log carries both
signatures. Notes of an old key stay good: its public half is kept in a file beside the keys, for
what stands below a note, or in the database, was perhaps put there by somebody else.
"""

import base64
import hashlib
import os
import re

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from audit import checkpoints, keyfile
from audit.checkpoints import BadNote, Signer
from audit.keyfile import BadKey, path_of

CURRENT = "audit-checkpoint.pem"
PREVIOUS = "audit-checkpoint.previous.pem"
RETIRED = "audit-checkpoint.retired"  # public keys in base64, one a line, the oldest first
INSTALLATION = "installation.id"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,63}")
_HEX = re.compile(rb"[0-9a-f]{16}")


class RotationUnderWay(Exception):
    """The last new key has not yet been signed with in every log."""


def plain(log: str) -> str:
    """A log's name as an origin and a file name may hold it: itself, as organizations are named."""
    if _PLAIN.fullmatch(log):
        return log
    return "sha256." + hashlib.sha256(log.encode()).hexdigest()[:40]


def installation() -> str:
    """Made once and kept with the keys: a copy of the database alone does not have it."""
    content = keyfile.read_or_make(INSTALLATION, lambda: os.urandom(8).hex().encode())
    if not _HEX.fullmatch(content.strip()):
        raise BadKey(f"{INSTALLATION} does not hold 16 hexadecimal digits: restore it.")
    return content.strip().decode()


def origin(log: str) -> str:
    """The first line of the log's checkpoints, and the name it signs under."""
    return f"toolcrib/{installation()}/{plain(log)}"


def signers_after(log: str, last_note: str) -> tuple[Signer, ...]:
    """Who signs the log's next checkpoint. The last one tells whether the new key is known yet."""
    name = origin(log)
    current = Signer(name, _read(CURRENT, keyfile.read_or_make(CURRENT, _new_key)))
    replaced = path_of(PREVIOUS)
    if not replaced.exists() or carries(last_note, current):
        return (current,)
    return (current, Signer(name, _read(PREVIOUS, replaced.read_bytes())))


def trusted(log: str) -> dict[str, bytes]:
    """The public keys of this installation by id: the one that signs, and all that did before."""
    now = [signer.public for signer in signers_after(log, "")]
    return {checkpoints.key_id(origin(log), public): public for public in (*now, *_retired()[::-1])}


def carries(note: str, signer: Signer) -> bool:
    """Whether a good signature of the signer's stands below the note."""
    try:
        return bool(checkpoints.signed_by(note, {signer.key_id: signer.public}))
    except BadNote:
        return False


def rotating() -> bool:
    return path_of(PREVIOUS).exists()


def rotate() -> None:
    """A new key signs from now on, at first beside the old one. Raises `RotationUnderWay`."""
    current = _read(CURRENT, keyfile.read_or_make(CURRENT, _new_key))
    try:
        os.link(path_of(CURRENT), path_of(PREVIOUS))
    except FileExistsError:
        raise RotationUnderWay(
            "The last new key is still being introduced: every log must be signed with it once. "
            "Is the sealer running, and is no log halted?"
        ) from None
    _retire(current.public_key().public_bytes_raw())
    keyfile.replace(CURRENT, _new_key())


def finish_rotation() -> None:
    """Every log is signed by the new key: the old private half is of no more use to anybody."""
    path_of(PREVIOUS).unlink(missing_ok=True)


def _retire(public: bytes) -> None:
    lines = [base64.b64encode(one).decode() for one in (*_retired(), public)]
    keyfile.replace(RETIRED, "".join(f"{line}\n" for line in dict.fromkeys(lines)).encode())


def _retired() -> list[bytes]:
    path = path_of(RETIRED)
    lines = path.read_bytes().split() if path.exists() else []
    try:
        keys = [base64.b64decode(line, validate=True) for line in lines]
    except ValueError:
        keys = [b""]
    if any(len(key) != 32 for key in keys):
        raise BadKey(f"{RETIRED} does not hold Ed25519 keys, one a line: restore it.")
    return keys


def _new_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def _read(name: str, content: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(content, password=None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{name} holds no Ed25519 key: restore it from a backup.")
    return key
