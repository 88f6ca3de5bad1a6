"""Keys of evidence, in files outside the database: an attacker who can only write to the database
can forge neither a record nor a checkpoint.

While a signing key is being replaced there are two, and the next checkpoint of every log carries
both signatures. Notes of an old key stay valid: its public half is kept in a file beside the keys,
since a key in a note or in the database may be an attacker's.

The sealer alone reads the private halves. Verifiers use a file of public keys, and manifests of
exports and archives, which workers write, are signed with a key of their own and under another
name, which makes no checkpoint valid.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from django.conf import settings

from audit import shared_files
from audit.log import checkpoints
from audit.log.checkpoints import BadNote, Signer

ROOT_KEY_FILE = "audit-records.key"
CURRENT = "audit-checkpoint.pem"
PREVIOUS = "audit-checkpoint.previous.pem"
PUBLIC = "audit-checkpoint.public"  # the keys that sign now; public keys in base64, one a line
RETIRED = "audit-checkpoint.retired"  # those that did before, the oldest first
MANIFESTS = "audit-manifest.pem"
RETIRED_MANIFESTS = "audit-manifest.retired"
INSTALLATION = "installation.id"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,63}")
_HEX = re.compile(rb"[0-9a-f]{16}")


class BadKey(ValueError):
    """A key file does not hold what it should; the message says which and what to do."""


def read_or_make(name: str, make: Callable[[], bytes], *, private: bool = False) -> bytes:
    """What the file in `KEYS_DIR` holds; written on first use, by the first of several writers. A
    private one is for the process alone to which the directory belongs."""
    path = path_of(name)
    if not path.exists():
        _write_key_file(path, make(), private)
    return path.read_bytes()


@lru_cache(maxsize=1)
def root_key() -> bytes:
    """32 bytes that every process of one installation shares. Raises `BadKey`, OSError."""
    key = read_or_make(ROOT_KEY_FILE, lambda: os.urandom(32))
    if len(key) != 32:
        raise BadKey(f"{ROOT_KEY_FILE} does not hold 32 bytes: restore it from a backup.")
    return key


@lru_cache(maxsize=1024)
def derived_key(purpose: str, organization: str) -> bytes:
    """A key of one organization for one purpose."""
    return hmac.digest(root_key(), f"{purpose}:{organization}".encode(), hashlib.sha256)


def path_of(name: str) -> Path:
    return Path(settings.KEYS_DIR) / name


def replace_key_file(name: str, content: bytes, *, private: bool = False) -> None:
    """Replace the file atomically, also at a loss of power."""
    with _draft(path_of(name), content, private) as draft:
        draft.replace(path_of(name))


class RotationUnderWay(Exception):
    """The last new key has not yet been signed with in every log."""


def safe_name(log: str) -> str:
    """A log's name as an origin and a file name may hold it: itself, as organizations are named."""
    if _PLAIN.fullmatch(log):
        return log
    return "sha256." + hashlib.sha256(log.encode()).hexdigest()[:40]


def installation_id() -> str:
    """Made once and kept with the keys: a copy of the database alone does not have it."""
    content = read_or_make(INSTALLATION, lambda: os.urandom(8).hex().encode())
    if not _HEX.fullmatch(content.strip()):
        raise BadKey(f"{INSTALLATION} does not hold 16 hexadecimal digits: restore it.")
    return content.strip().decode()


def log_origin(log: str) -> str:
    """The first line of the log's checkpoints, and the name it signs under."""
    return f"toolcrib/{installation_id()}/{safe_name(log)}"


def next_signers(log: str, last_note: str) -> tuple[Signer, ...]:
    """The signers of the log's next checkpoint. The last one shows whether the new key is known
    yet."""
    name = log_origin(log)
    current = Signer(name, _current_key())
    replaced = path_of(PREVIOUS)
    if not replaced.exists() or is_signed_by(last_note, current):
        return (current,)
    return (current, Signer(name, _load_key(PREVIOUS, replaced.read_bytes())))


def trusted_keys(log: str) -> dict[str, bytes]:
    """The public keys of this installation by id: the one that signs, and all that did before."""
    every = (*_public_keys(), *_read_list(RETIRED)[::-1])
    return {checkpoints.key_id(log_origin(log), public): public for public in every}


def manifest_signer(log: str) -> Signer:
    """The signer of manifests of the log's exports and archives."""
    return Signer(manifest_name(log), _manifest_key())


def manifest_name(log: str) -> str:
    return f"{log_origin(log)}/manifests"


def manifest_keys(log: str) -> dict[str, bytes]:
    """The public keys of manifests by id. Manifests from before there were any are signed as
    checkpoints are."""
    now = _manifest_key().public_key().public_bytes_raw()
    every = (now, *_read_list(RETIRED_MANIFESTS)[::-1])
    return {checkpoints.key_id(manifest_name(log), public): public for public in every}


def prepare_keys() -> None:
    """Make what is missing, and let others know who signs checkpoints."""
    installation_id()
    root_key()
    _current_key()
    _manifest_key()
    _write_list(PUBLIC, _public_keys())


def is_signed_by(note: str, signer: Signer) -> bool:
    """Whether the note has a valid signature of the signer."""
    try:
        return bool(checkpoints.signed_by(note, {signer.key_id: signer.public}))
    except BadNote:
        return False


def is_rotating() -> bool:
    return path_of(PREVIOUS).exists()


def rotate_keys() -> None:
    """A new key signs from now on, at first beside the old one. Raises `RotationUnderWay`."""
    current, manifests = _current_key(), _manifest_key()
    try:
        os.link(path_of(CURRENT), path_of(PREVIOUS))
    except FileExistsError:
        raise RotationUnderWay(
            "The last new key is still being introduced: every log must be signed with it once. "
            "Is the sealer running, and is no log halted?"
        ) from None
    _add_retired(RETIRED, current)
    replace_key_file(CURRENT, _new_key(), private=True)
    _write_list(PUBLIC, _public_keys())
    _add_retired(RETIRED_MANIFESTS, manifests)
    replace_key_file(MANIFESTS, _new_key())


def finish_rotation() -> None:
    """Every log is signed by the new key: delete the old private half, which is no longer
    needed."""
    path_of(PREVIOUS).unlink(missing_ok=True)
    _write_list(PUBLIC, _public_keys())


def signed_manifest(log: str, fields: dict[str, object]) -> str:
    """The content of an evidence file as a signed note (https://c2sp.org/signed-note): the log's
    origin, one `name value` a line, an empty line, the signatures."""
    lines = [log_origin(log), *(f"{name} {value}" for name, value in fields.items())]
    text = "".join(f"{_without_newlines(line)}\n" for line in lines)
    return text + "\n" + manifest_signer(log).line(text)


def _write_key_file(path: Path, content: bytes, private: bool) -> None:
    shared_files.make_directory(path.parent)
    shared_files.sync_directory(path.parent.parent)
    with _draft(path, content, private) as draft, suppress(FileExistsError):
        os.link(draft, path)  # of several writers the first one's key is the one


@contextmanager
def _draft(path: Path, content: bytes, private: bool) -> Iterator[Path]:
    """The content on the disk, to be given its name, which is on the disk afterwards."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = shared_files.open_to_write(draft, os.O_WRONLY | os.O_EXCL, private=private)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
    shared_files.sync_directory(path.parent)


def _current_key() -> Ed25519PrivateKey:
    return _load_key(CURRENT, read_or_make(CURRENT, _new_key, private=True))


def _manifest_key() -> Ed25519PrivateKey:
    return _load_key(MANIFESTS, read_or_make(MANIFESTS, _new_key))


def _public_keys() -> list[bytes]:
    """Of those that sign checkpoints now, the current one first."""
    try:
        return [signer.public for signer in next_signers("any", "")]
    except PermissionError:
        return _read_list(PUBLIC)


def _add_retired(name: str, key: Ed25519PrivateKey) -> None:
    _write_list(name, (*_read_list(name), key.public_key().public_bytes_raw()))


def _write_list(name: str, keys: Iterable[bytes]) -> None:
    lines = dict.fromkeys(base64.b64encode(one).decode() for one in keys)
    content = "".join(f"{line}\n" for line in lines).encode()
    if not path_of(name).exists() or path_of(name).read_bytes() != content:
        replace_key_file(name, content)


def _read_list(name: str) -> list[bytes]:
    path = path_of(name)
    lines = path.read_bytes().split() if path.exists() else []
    try:
        keys = [base64.b64decode(line, validate=True) for line in lines]
    except ValueError:
        keys = [b""]
    if any(len(key) != 32 for key in keys):
        raise BadKey(f"{name} does not hold Ed25519 keys, one a line: restore it.")
    return keys


def _new_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def _load_key(name: str, content: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(content, password=None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{name} holds no Ed25519 key: restore it from a backup.")
    return key


def _without_newlines(line: str) -> str:
    return line.replace("\n", " ").replace("\r", " ")
