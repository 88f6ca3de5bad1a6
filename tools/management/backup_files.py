"""The files of a backup, and the manifest with the size and digest of each of them.

The manifest is written last, so that an interrupted backup has none. A line in the format of
`sha256sum` holds the digest of the manifest itself.
"""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from config.local.child_processes import ProcessSpec, launch_command
from config.local.unix_accounts import UnixAccount

FORMAT = 1
MANIFEST, MANIFEST_DIGEST = "manifest.json", "manifest.json.sha256"
PAYLOAD_KEYS = "keys/payloads/*.key"
CHECKOUT = Path(__file__).resolve().parents[2]
_SHOWN = 5
_DIFFERS = 1  # tar's exit status where a file changed or vanished while it was read


class BadBackup(Exception):
    """The backup cannot be restored; the message says why."""


class BackupFailed(Exception):
    """No backup was made; the message says why."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LogHead:
    """The size and root of an organization's audit log; the root in hexadecimal digits."""

    name: str
    size: int
    root: str


@dataclass(frozen=True, slots=True)
class Manifest:
    product: str
    moment: str
    server: int  # PostgreSQL's major version
    role: str  # that owns the tables
    migrations: list[str]
    secret_key: str  # a fingerprint, to compare it with another key
    logs: list[LogHead]
    left_out: list[str]
    remarks: list[str]
    files: list[BackupFile]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def names(self, folder: str) -> list[str]:
        return [file.name for file in self.files if file.name.startswith(f"{folder}/")]


def product_version() -> str:
    said = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))
    return str(said["project"]["version"])


def check_target(target: Path, data: Path) -> None:
    """Make the directory of a new backup. Raises `BackupFailed`."""
    if target.is_relative_to(data):
        raise BackupFailed(
            f"{target} is in the data directory, and would be lost with it: name another."
        )
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise BackupFailed(f"{target} is not empty: name a directory that is new or empty.")
        target.chmod(0o700)
    except OSError as error:
        raise BackupFailed(f"{target} cannot be written: {error.strerror}.") from None


def write_manifest(target: Path, said: dict[str, Any]) -> Manifest:
    """List all files below `target`; they are flushed to the disk when it returns."""
    files = [_described(path, target) for path in _files(target)]
    for folder, _, _ in os.walk(target):
        _flush(Path(folder))
    manifest = Manifest(**said, product=product_version(), files=files)
    content = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode() + b"\n"
    digest = f"{hashlib.sha256(content).hexdigest()}  {MANIFEST}\n".encode()
    for name, text in ((MANIFEST_DIGEST, digest), (MANIFEST, content)):
        write(target / name, text)
        _flush(target / name)
    _flush(target)
    return manifest


def read_manifest(source: Path) -> Manifest:
    """Raises `BadBackup`, also for a format that this product does not know."""
    try:
        content = (source / MANIFEST).read_bytes()
        digest = (source / MANIFEST_DIGEST).read_text("ascii").partition(" ")[0]
    except FileNotFoundError as missing:
        raise BadBackup(
            f"{source} is no whole backup: it has no {Path(str(missing.filename)).name}."
        ) from None
    except (OSError, ValueError) as error:
        raise BadBackup(f"The manifest in {source} cannot be read: {error}.") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise BadBackup(f"The backup in {source} is damaged: {MANIFEST} is not what was written.")
    said = json.loads(content)
    if said.pop("format") != FORMAT:
        raise BadBackup(
            f"The backup in {source} has a form that this Toolcrib does not know:"
            " restore it with the version that made it, or a newer one."
        )
    said["files"] = [BackupFile(**file) for file in said["files"]]
    said["logs"] = [LogHead(**head) for head in said["logs"]]
    return Manifest(**said)


def check_files(source: Path, manifest: Manifest) -> list[str]:
    """Raises `BadBackup` where a file differs from its manifest entry. Returns the names of
    payload keys that an operator removed from the backup to erase payloads."""
    erased = [file.name for file in manifest.files if _erased(source, file)]
    others = [file for file in manifest.files if file.name not in erased]
    flaws = [flaw for file in others if (flaw := _flaw(source, file))]
    if flaws:
        more = f", and {len(flaws) - _SHOWN} more" if len(flaws) > _SHOWN else ""
        raise BadBackup(
            f"The backup in {source} is damaged: {', '.join(flaws[:_SHOWN])}{more}."
            " Nothing was restored."
        )
    return erased


def check_not_newer(manifest: Manifest, known_migrations: Iterable[str]) -> None:
    """Raises `BadBackup` for a backup that a newer Toolcrib made."""
    unknown = sorted({*manifest.migrations} - {*known_migrations})
    if unknown or _ordered(manifest.product) > _ordered(product_version()):
        why = f"its migration {unknown[-1]} is not known here" if unknown else "by its version"
        raise BadBackup(
            f"The backup is of Toolcrib {manifest.product}, which is newer than this one"
            f" ({product_version()}): {why}. Restore it with that version, or a newer one."
        )


def write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, in directories that only their owner may enter."""
    with closing(_Created(path)) as file:
        file.write(content)


def copy_file(source: Path, target: Path, most_bytes: int | None = None) -> None:
    """Copy the file as it is now, or its first bytes."""
    with source.open("rb") as content, closing(_Created(target)) as out:
        left = most_bytes
        while part := content.read(1 << 20 if left is None else min(1 << 20, left)):
            out.write(part)
            left = None if left is None else left - len(part)


def compress(parts: Iterable[bytes], target: Path) -> None:
    """Raises what `parts` raises, and `OSError`."""
    with closing(_Created(target)) as out, gzip.GzipFile("", "wb", 3, out.file, mtime=0) as packed:
        for part in parts:
            packed.write(part)


def pack(directory: Path, target: Path) -> list[str]:
    """Archive the directory into one file while processes write to it, and return tar's remarks.
    Sparse files stay sparse."""
    command = [_tar(), "--create", "--sparse", "--gzip", "--numeric-owner", "--ignore-failed-read"]
    with closing(_Created(target)) as out:
        done = subprocess.run(
            [*command, "--directory", str(directory), "."],
            stdin=subprocess.DEVNULL,
            stdout=out.file,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C", "PATH": os.defpath},
            check=False,
        )
    said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line]
    if done.returncode not in (0, _DIFFERS):
        raise BackupFailed(f"{directory} could not be packed: {said[-1] if said else 'tar failed'}")
    return [f"{target.name}: {line.partition(': ')[2]}" for line in said]


def unpack(source: Path, directory: Path, account: UnixAccount, reach: tuple[Path, ...]) -> None:
    """Run as that account, so that it owns all files and nothing outside can be written."""
    command = (_tar(), "--extract", "--gzip", "--no-same-owner", "--preserve-permissions")
    spec = ProcessSpec("tar", command, directory, account=account, reach=(*reach, directory))
    with source.open("rb") as packed:
        done = subprocess.run(
            launch_command(spec),
            stdin=packed,
            capture_output=True,
            env={"LC_ALL": "C", "PATH": os.defpath},
            check=False,
        )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise BadBackup(
            f"{source.name} could not be unpacked: {said[-1] if said else 'tar failed'}"
        )


class _Created:
    """A new file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        for folder in [one for one in reversed(path.parents) if not one.exists()]:
            folder.mkdir(mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self.file = os.fdopen(os.open(path, flags, 0o600), "wb")
        self.write = self.file.write

    def close(self) -> None:
        self.file.close()


def _files(target: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(target):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def _described(path: Path, target: Path) -> BackupFile:
    _flush(path)
    return BackupFile(str(path.relative_to(target)), path.stat().st_size, _sha256(path))


def _erased(source: Path, file: BackupFile) -> bool:
    return PurePosixPath(file.name).match(PAYLOAD_KEYS) and not (source / file.name).exists()


def _flaw(source: Path, file: BackupFile) -> str:
    name = PurePosixPath(file.name)
    path = source / name
    if name.is_absolute() or ".." in name.parts or not path.is_file():
        return f"{file.name} is missing"
    if path.stat().st_size != file.size:
        return f"{file.name} has {path.stat().st_size} bytes and should have {file.size}"
    return "" if _sha256(path) == file.sha256 else f"{file.name} is not what was written"


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _ordered(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tar() -> str:
    found = shutil.which("tar")
    if found is None:
        raise BackupFailed("Workspaces are packed by tar, which is not here: install GNU tar.")
    return found
