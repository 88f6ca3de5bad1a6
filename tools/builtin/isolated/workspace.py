"""Opening files of the workspace and nothing else. Inside the sandbox: standard library only.

Every step of a path is opened on its own, relative to the step before, and no step may be a link:
the opened file is the one of the path, even while other processes move files.
"""

import errno
import hashlib
import os
import stat
import time
from typing import Any

from toolcrib import ToolError

ROOT = "/workspace"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST = 4096
_DEEPEST = 64
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def steps_of(path: str, *, root: bool = False) -> list[str]:
    """The names along a relative path; none for the workspace itself, where `root` allows it.

    Raises ToolError for one that leads elsewhere.
    """
    if "\x00" in path or len(path.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise ToolError("PATH_INVALID", "The path holds a NUL character or is too long.")
    if path.startswith("/"):
        raise ToolError("PATH_INVALID", "The path must be relative to the workspace.")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise ToolError("PATH_INVALID", "The path must not hold '..'.")
    if len(steps) > _DEEPEST:
        raise ToolError("PATH_INVALID", f"The path is deeper than {_DEEPEST} folders.")
    if not steps and not root:
        raise ToolError("PATH_INVALID", "The path names the workspace itself, not a file in it.")
    return steps


def open_directory(steps: list[str], *, create: bool = False) -> int:
    """A descriptor of the directory at the end of the steps."""
    current = os.open(ROOT, _DIRECTORY)
    for step in steps:
        try:
            if create:
                _make(step, current)
            below = os.open(step, _DIRECTORY, dir_fd=current)
        except OSError as error:
            raise refusal(error, "/".join(steps)) from None
        finally:
            os.close(current)
        current = below
    return current


def open_regular(name: str, directory: int, flags: int, path: str) -> int:
    """A descriptor of a regular file; never of a link, a pipe or a device."""
    try:
        # Non-blocking: opening a pipe would otherwise wait for its other end.
        opened = os.open(
            name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=directory
        )
    except OSError as error:
        raise refusal(error, path) from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise ToolError("NOT_A_FILE", f"{path} is not a regular file.")
    return opened


def hash_of(file: Any) -> str:
    """SHA-256 of all that the open file holds, in hexadecimal digits."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def entry(name: str, directory: int) -> dict[str, object] | None:
    """What a listing says of one name; None when it is not there, or not any more."""
    try:
        found = os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(error, name) from None
    return {
        # A name is bytes to the kernel; what is no text is shown, not passed on.
        "name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "kind": _KINDS.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "modified": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime)),
    }


def missing(steps: list[str]) -> int:
    """How many names of the path are not there; none where the whole of it is.

    Raises ToolError where a step is no directory.
    """
    for end in range(1, len(steps) + 1):
        directory = open_directory(steps[: end - 1])
        try:
            if entry(steps[end - 1], directory) is None:
                return len(steps) - end + 1
        finally:
            os.close(directory)
    return 0


def size_of(steps: list[str]) -> int:
    directory = open_directory(steps[:-1])
    try:
        return _bytes_of(steps[-1], directory)
    finally:
        os.close(directory)


def usage(most_names: int) -> tuple[int, int]:
    """Files and folders, and bytes; counted not much further than `most_names`."""
    names = size = 0
    for _, folders, files, directory in os.fwalk(ROOT):
        names += len(folders) + len(files)
        size += sum(_bytes_of(name, directory) for name in files)
        if names > most_names:
            break
    return names, size


def refusal(error: OSError, path: str) -> ToolError:
    """The error for the caller, by its kind: never the words of the operating system."""
    code, sentence = _REFUSALS.get(error.errno or 0, ("FILE_ERROR", "{path} cannot be used."))
    return ToolError(code, sentence.format(path=path))


_REFUSALS = {
    errno.ENOENT: ("FILE_NOT_FOUND", "There is no {path} in the workspace."),
    errno.ENOTDIR: ("PATH_INVALID", "A part of {path} is not a directory, or is a link."),
    errno.ELOOP: ("PATH_INVALID", "{path} leads through a link."),
    errno.EISDIR: ("NOT_A_FILE", "{path} is a directory."),
    errno.ENXIO: ("NOT_A_FILE", "{path} is not a regular file."),
    errno.EEXIST: ("FILE_EXISTS", "{path} is there already."),
    errno.EACCES: ("FILE_FORBIDDEN", "The workspace's permissions do not allow that for {path}."),
    errno.EPERM: ("FILE_FORBIDDEN", "The workspace's permissions do not allow that for {path}."),
    errno.EROFS: ("FILE_FORBIDDEN", "The workspace is read-only for this tool."),
    errno.ENAMETOOLONG: ("PATH_INVALID", "A name in {path} is too long."),
    errno.ENOSPC: ("DISK_FULL", "The disk is full."),
    errno.EFBIG: ("FILE_TOO_LARGE", "{path} would become too large."),
}


def _bytes_of(name: str, directory: int) -> int:
    try:
        return os.lstat(name, dir_fd=directory).st_size
    except FileNotFoundError:
        return 0


def _make(name: str, directory: int) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=directory)
    except FileExistsError:
        pass
