"""Parse and check the answer of a tool's side, which is untrusted."""

import re
from dataclasses import dataclass
from typing import Any

from sandbox import strictjson
from sandbox.errors import ErrorCode

RESULT, ERROR = b"R", b"E"
# What the tool's side may say of itself in our words; the others are said by who watched it.
_ITS_OWN = frozenset({ErrorCode.TOOL_ERROR, ErrorCode.INVALID_RESULT, ErrorCode.MEMORY_LIMIT})
_OURS = frozenset(ErrorCode) - _ITS_OWN
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,39}\Z")
_MESSAGE_LENGTH = 800  # class name, 500 characters of text, line


@dataclass(frozen=True)
class End:
    """How a run ended: with the raw JSON of a result, or with a code and a text."""

    output: bytes = b""
    code: str | None = None
    message: str | None = None


def read_answer(frame: bytes) -> End:
    """Anything unclean is INVALID_RESULT; an accepted output is handed on as it came."""
    kind, payload = frame[:1], frame[1:]
    try:
        value = strictjson.parse(payload, large_integers=True)
        if kind == RESULT:
            return End(output=payload)
        if kind == ERROR:
            return _read_error(value)
        raise strictjson.Hostile("neither result nor error")
    except strictjson.Hostile as reason:
        return End(code=ErrorCode.INVALID_RESULT, message=f"the result was refused: {reason}")


def _read_error(value: Any) -> End:
    if isinstance(value, dict):
        code, message = value.get("code"), value.get("message")
        if isinstance(code, str) and isinstance(message, str) and _CODE.match(code):
            honest = ErrorCode.TOOL_ERROR if code in _OURS else code
            return End(code=honest, message=message[:_MESSAGE_LENGTH])
    raise strictjson.Hostile("an error without code and message")
