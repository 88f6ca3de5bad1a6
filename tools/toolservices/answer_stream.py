"""Assembles an answer from the entries of its stream, which any service may have written.

The exceptions of a call that failed say what is known about it.
"""

import hmac
import logging
import re
from collections.abc import Callable, Mapping

from toolcrib_service.queue_protocol import Malformed, Response
from tools import metrics
from tools.definitions.values import strict_json

log = logging.getLogger(__name__)
LONGEST = 1024 * 1024  # characters of one answer, as JSON
_LONGEST_ESCAPE = 6  # characters of JSON for one byte of text
_ENVELOPE_CHARS = 200  # characters of JSON around the text of one answer
MOST_CHUNKS = 100_000
MOST_DROPPED = 1_000  # of one call: a stream that others flood is abandoned
INVALID = "SERVICE_ANSWER_INVALID"
_NUMBER = re.compile(r"[0-9]{1,9}")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class NotAnswered(Exception):
    """The base of these exceptions. The text is for the caller."""


class NotBegun(NotAnswered):
    """Certain: no process took the request, and none will."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolServiceCallFailed(NotAnswered):
    """The service reported an error, or an invalid answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolServiceCallLost(NotAnswered):
    """A process took the request, and its progress is unknown."""


class TimedOut(NotAnswered):
    """A process took the request and did not finish."""


class ToolServiceCallCancelled(NotAnswered):
    def __init__(self, *, begun: bool) -> None:
        super().__init__("The call was cancelled.")
        self.begun = begun


class AnswerAssembly:
    """The chunks of one call. `done` once the service has sent the end."""

    def __init__(
        self, call: str, token: str, *, most_bytes: int, tell: Callable[[str], None]
    ) -> None:
        self._call, self._token = call, token
        self._remaining_bytes, self._tell = most_bytes, tell
        self._remaining_chars = LONGEST + _LONGEST_ESCAPE * most_bytes
        self._chunks: list[str] = []
        self._last_number = self._dropped = 0
        self.done = False

    @property
    def text(self) -> str:
        return "".join(self._chunks)

    def take(self, fields: Mapping[str, str]) -> None:
        """Raises `ToolServiceCallFailed` where the service reports an error, or where its answers
        cannot be trusted."""
        if reason := self._rejection_reason(fields):
            self._drop(reason)
            return
        number = int(fields["n"])
        if number != self._last_number + 1 or number > MOST_CHUNKS:
            raise ToolServiceCallFailed(
                INVALID, "A part of the service's answer is missing, or it has too many."
            )
        self._last_number = number
        body = fields.get("body", "")
        self._remaining_chars -= max(0, len(body) - _ENVELOPE_CHARS)
        if self._remaining_chars < 0:
            raise ToolServiceCallFailed(INVALID, "The service's answers hold more than answers.")
        self._append(_read_response(body))

    def _rejection_reason(self, fields: Mapping[str, str]) -> str:
        """Why an entry is not the next part of the answer; empty where it is."""
        if fields.get("id") != self._call:
            return "foreign"
        token = fields.get("token", "").encode("utf-8", "replace")
        if not hmac.compare_digest(token, self._token.encode()):
            return "token"
        if self.done:
            return "late"
        if not _NUMBER.fullmatch(fields.get("n", "")):
            return "foreign"
        return "duplicate" if int(fields["n"]) <= self._last_number else ""

    def _drop(self, reason: str) -> None:
        metrics.service_answers_dropped.labels(reason).inc()
        self._dropped += 1
        if self._dropped > MOST_DROPPED:
            raise ToolServiceCallFailed(INVALID, "Too many answers came that nobody had asked for.")

    def _append(self, response: Response) -> None:
        if response.error_type is not None:
            kind, message = (
                _printable(response.error_type)[:100],
                _printable(response.error_message),
            )
            raise ToolServiceCallFailed(
                "TOOL_ERROR", f"{kind}: {message}"[:2000] if kind else message[:2000]
            )
        self._remaining_bytes -= len(response.response.encode())
        if self._remaining_bytes < 0:
            raise ToolServiceCallFailed(
                "OUTPUT_LIMIT", "The service answered more than the tool may return."
            )
        if response.response:
            self._chunks.append(response.response)
            if not (response.end_of_stream and len(self._chunks) == 1):
                self._tell(response.response)
        self.done = response.end_of_stream


def _read_response(body: str) -> Response:
    if len(body) > LONGEST:
        raise ToolServiceCallFailed(INVALID, "A part of the service's answer is too long.")
    try:
        return Response.read(body, strict_json.parse)
    except (Malformed, strict_json.BadJson) as flaw:
        log.warning("a tool service answered what cannot be read: %s", flaw)
        raise ToolServiceCallFailed(
            INVALID, "The service answered something that cannot be read."
        ) from None


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)
