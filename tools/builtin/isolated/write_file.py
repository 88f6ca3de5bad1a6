"""The built-in `write_file`. Runs inside the sandbox: standard library only."""

import base64
import binascii
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import workspace
from toolcrib import ToolError

MOST_BYTES = 8 * 1024 * 1024
MOST_FILE_BYTES = 64 * 1024 * 1024
_PART_BYTES = 1024 * 1024


def main(parameters: dict[str, Any]) -> dict[str, object]:
    """Write, append or create; a file is at every moment the old one or the new one.

    `quota` is the workspace's, {files, bytes}; no caller sets it. The worker outside the sandbox
    holds the workspace's lock, so that no other call writes between the checks and the write.
    """
    path, mode = parameters["path"], parameters["mode"]
    raw = _bytes(parameters["content"], parameters["encoding"])
    steps = workspace.steps_of(path)
    write = {"overwrite": _overwrite, "append": _append, "create": _create}[mode]
    missing = workspace.missing(steps)
    _check_hash(steps, missing, parameters.get("if_hash"), path)
    _check_quota(parameters["quota"], steps, missing, mode, len(raw))
    directory = workspace.open_directory(steps[:-1], create=True)
    size = write(directory, steps[-1], raw, path)
    content_hash = _hash_of(directory, steps[-1], path)
    return {
        "path": "/".join(steps),
        "bytes_written": len(raw),
        "size": size,
        "mode": mode,
        "sha256": content_hash,
    }


def _check_quota(
    quota: dict[str, int], steps: list[str], missing: int, mode: str, more: int
) -> None:
    """Raises ToolError when the workspace would hold more than it may afterwards.

    No folder has been created yet: a refused write leaves none.
    """
    files, size = workspace.usage(quota["files"])
    if missing and files + missing > quota["files"]:
        raise ToolError(
            "QUOTA_EXCEEDED",
            f"The workspace may hold {quota['files']} files and folders; it holds {files}.",
        )
    if not missing and mode == "overwrite":
        size -= workspace.size_of(steps)
    if size + more > quota["bytes"]:
        left = max(quota["bytes"] - size, 0)
        raise ToolError(
            "QUOTA_EXCEEDED",
            f"The workspace may hold {quota['bytes']} bytes: {left} are left, {more} are needed.",
        )


def _check_hash(steps: list[str], missing: int, expected: str | None, path: str) -> None:
    if expected is None:
        return
    found = "no file"
    if not missing:
        found = _hash_of(workspace.open_directory(steps[:-1]), steps[-1], path)
    if found != expected.lower():
        raise ToolError(
            "FILE_CHANGED", f"{path} is not what you read: its sha256 is {found}. Read it again."
        )


def _hash_of(directory: int, name: str, path: str) -> str:
    opened = workspace.open_regular(name, directory, os.O_RDONLY, path)
    with os.fdopen(opened, "rb") as file:
        return workspace.hash_of(file)


def _bytes(content: str, encoding: str) -> bytes:
    try:
        if encoding == "base64":
            raw = base64.b64decode(content, validate=True)
        else:
            raw = content.encode(encoding)
    except (UnicodeError, binascii.Error):
        raise ToolError(
            "ENCODING_MISMATCH", f"The content cannot be written as {encoding}."
        ) from None
    if len(raw) > MOST_BYTES:
        raise ToolError("FILE_TOO_LARGE", f"The content is larger than {MOST_BYTES} bytes.")
    return raw


def _overwrite(directory: int, name: str, raw: bytes, path: str) -> int:
    _refuse_other_kinds(directory, name, path)
    with _draft(directory, path) as (draft, file):
        size = _written(file, raw)
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    return size


def _append(directory: int, name: str, raw: bytes, path: str) -> int:
    """A copy that ends with more takes the old one's place."""
    try:
        opened = workspace.open_regular(name, directory, os.O_RDWR, path)
    except ToolError as refusal:
        if refusal.code != "FILE_NOT_FOUND":
            raise
        return _create(directory, name, raw, path)
    with os.fdopen(opened, "rb") as old, _draft(directory, path) as (draft, file):
        if os.fstat(opened).st_size + len(raw) > MOST_FILE_BYTES:
            raise ToolError("FILE_TOO_LARGE", f"{path} would pass {MOST_FILE_BYTES} bytes.")
        while part := old.read(_PART_BYTES):
            file.write(part)
        size = _written(file, raw)
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    return size


def _create(directory: int, name: str, raw: bytes, path: str) -> int:
    """A second name is given only where there is nothing of that name."""
    with _draft(directory, path) as (draft, file):
        size = _written(file, raw)
        os.link(draft, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    return size


@contextmanager
def _draft(directory: int, path: str) -> Iterator[tuple[str, BinaryIO]]:
    """A new file beside the target, and its name: readers never see an incomplete file.

    Raises ToolError; whatever happened, nothing is left under that name.
    """
    name = f".{secrets.token_hex(16)}.tmp"
    opened = workspace.open_regular(name, directory, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path)
    try:
        with os.fdopen(opened, "wb") as file:
            yield name, file
        os.fsync(directory)
    except OSError as error:
        raise workspace.refusal(error, path) from None
    finally:
        _remove(directory, name)


def _written(file: BinaryIO, raw: bytes) -> int:
    """The size of the file, now that all of it is on the disk. Raises OSError."""
    file.write(raw)
    file.flush()
    os.fsync(file.fileno())
    return os.fstat(file.fileno()).st_size


def _refuse_other_kinds(directory: int, name: str, path: str) -> None:
    """A link or a pipe of that name is not replaced: it was created on purpose."""
    try:
        os.close(workspace.open_regular(name, directory, os.O_RDONLY, path))
    except ToolError as refusal:
        if refusal.code != "FILE_NOT_FOUND":
            raise


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
