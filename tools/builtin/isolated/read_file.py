"""The built-in `read_file`. Runs inside the sandbox: standard library only."""

import base64
import codecs
import os
from typing import Any

import workspace
from toolcrib import ToolError

MOST_BYTES = 8 * 1024 * 1024
MOST_ENTRIES = 1_000
_BYTE_ORDERS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def main(parameters: dict[str, Any]) -> dict[str, object]:
    """A file's content or a piece of it, or what lies in a directory."""
    offset, length = parameters.get("offset", 0), parameters.get("length")
    if parameters.get("what", "content") == "listing":
        return _listing(parameters["path"], offset, length)
    return _content(parameters["path"], parameters["encoding"], offset, length)


def _content(path: str, encoding: str, offset: int, length: int | None) -> dict[str, object]:
    """`sha256` is the whole file's, and comes with its first piece: a file that is read in many is
    hashed once. `next_offset` is where the piece ends."""
    steps = workspace.steps_of(path)
    directory = workspace.open_directory(steps[:-1])
    opened = workspace.open_regular(steps[-1], directory, os.O_RDONLY, path)
    with os.fdopen(opened, "rb") as file:
        size = os.fstat(opened).st_size
        if length is None and size - offset > MOST_BYTES:
            raise ToolError(
                "FILE_TOO_LARGE",
                f"{path} is larger than {MOST_BYTES} bytes: read pieces by offset and length.",
            )
        content_hash = workspace.hash_of(file) if offset == 0 else None
        order = _byte_order(file) if encoding == "utf-16" else encoding
        file.seek(offset)
        raw = file.read(min(length or MOST_BYTES, MOST_BYTES))
        last = not file.read(1)
    content, used = _decoded(raw, order, path, begins=offset == 0, last=last)
    return {
        "content": content,
        "size": size,
        "encoding": encoding,
        "sha256": content_hash,
        "offset": offset,
        "next_offset": None if last else offset + used,
    }


def _listing(path: str, offset: int, length: int | None) -> dict[str, object]:
    """By name; `offset` and `length` count entries."""
    steps = workspace.steps_of(path, root=True)
    directory = workspace.open_directory(steps)
    names = sorted(os.listdir(directory))
    piece = names[offset : offset + min(length or MOST_ENTRIES, MOST_ENTRIES)]
    entries = [entry for name in piece if (entry := workspace.entry(name, directory))]
    end = offset + len(piece)
    return {
        "path": "/".join(steps) or ".",
        "entries": entries,
        "count": len(names),
        "next_offset": end if end < len(names) else None,
    }


def _byte_order(file: Any) -> str:
    file.seek(0)
    mark = file.read(2)
    return _BYTE_ORDERS.get(mark, "utf-16-le")


def _decoded(raw: bytes, encoding: str, path: str, *, begins: bool, last: bool) -> tuple[str, int]:
    """The text, and how many bytes it stands for: a character that was cut is left to the next."""
    if encoding == "base64":
        return base64.b64encode(raw).decode("ascii"), len(raw)
    try:
        text, used = codecs.getincrementaldecoder(encoding)().decode(raw, last), len(raw)
    except UnicodeError:
        raise ToolError("ENCODING_MISMATCH", f"{path} is not {encoding}; try base64.") from None
    if not last:
        used = len(text.encode(encoding))
    if begins and encoding.startswith("utf-16"):
        text = text.removeprefix("\ufeff")
    if "\x00" in text:
        raise ToolError("ENCODING_MISMATCH", f"{path} holds NUL characters; read it as base64.")
    return text, used
