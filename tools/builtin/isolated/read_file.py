"""The built-in `read_file`. Runs inside the sandbox: standard library only."""

import base64
import os

import workspace
from toolcrib import ToolError

MOST_BYTES = 8 * 1024 * 1024


def main(parameters: dict[str, str]) -> dict[str, object]:
    """The text of a workspace file with its size in bytes; `base64` for what is no text."""
    path, encoding = parameters["path"], parameters["encoding"]
    steps = workspace.steps_of(path)
    directory = workspace.open_directory(steps[:-1])
    opened = workspace.open_regular(steps[-1], directory, os.O_RDONLY, path)
    with os.fdopen(opened, "rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ToolError("FILE_TOO_LARGE", f"{path} is larger than {MOST_BYTES} bytes.")
    return {"content": _text(raw, encoding, path), "size": len(raw), "encoding": encoding}


def _text(raw: bytes, encoding: str, path: str) -> str:
    if encoding == "base64":
        return base64.b64encode(raw).decode("ascii")
    try:
        text = raw.decode(encoding)
    except UnicodeError:
        raise ToolError("ENCODING_MISMATCH", f"{path} is not {encoding}; try base64.") from None
    if "\x00" in text:
        raise ToolError("ENCODING_MISMATCH", f"{path} holds NUL characters; read it as base64.")
    return text
