"""Assembles a model's answer: text, tool calls and token counts, from a stream or whole.

The response is untrusted: its size and its counts are bounded, and an incomplete answer is an
error.

A piece of a tool call belongs to a call by its index, in a whole answer by its place in the list.
Some endpoints give several calls one index: a new id then begins a new call, so that pieces of
calls are never mixed.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.values import strict_json
from tools.definitions.values.server_sent_events import EventReader, EventTooLong
from tools.httpclient.upstream_pool import Broken, UpstreamResponse

LONGEST_EVENT = 1_000_000  # bytes
MOST_CALLS = 128
MOST_INDEX = 10_000
_CHUNKS_WITHOUT_CONTENT = 1_000  # without content: roles, pings, usage
_CHUNKS_PER_TOKEN = 4
_MOST_TOKENS = 10**9
_CUT_REASONS = frozenset({"length", "max_tokens", "model_length", "content_filter"})
_TEXT_PARTS = frozenset({"text", "output_text", "refusal"})  # types of parts with the answer
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class BadStream(ValueError):
    """Not a stream of events that may be read; the message says why."""


@dataclass(frozen=True)
class ModelToolCall:
    """A call as the model wrote it: the name may be no tool's, the arguments no JSON."""

    name: str
    arguments: str


@dataclass
class _PartialToolCall:
    index: int
    id: str = ""
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


class ModelToolCalls:
    """`weigh` is called with all text that is kept."""

    def __init__(self, weigh: Callable[[str], None]) -> None:
        self._count_bytes = weigh
        self._every: list[_PartialToolCall] = []
        self._at: dict[int, _PartialToolCall] = {}  # the latest of each index

    def take(self, pieces: list[Any]) -> None:
        """Raises `BadStream`."""
        for place, piece in enumerate(pieces):
            if not isinstance(piece, dict):
                raise BadStream("a tool call is no object")
            self._add(self._find_call(piece, place), piece.get("function"))

    def first(self) -> ModelToolCall | None:
        return next(iter(self.in_order()), None)

    def in_order(self) -> tuple[ModelToolCall, ...]:
        """All of them, by their indexes; those of one index as they input_tokens."""
        ordered = sorted(self._every, key=lambda call: call.index)
        return tuple(ModelToolCall("".join(one.name), "".join(one.arguments)) for one in ordered)

    def _find_call(self, piece: dict[str, Any], place: int) -> _PartialToolCall:
        index, given = piece.get("index"), piece.get("id")
        index = place if index is None else index
        if type(index) is not int or not 0 <= index <= MOST_INDEX:
            raise BadStream("a tool call has no index")
        own = given if isinstance(given, str) else ""
        call = self._at.get(index)
        if (
            call is None
            or (own and call.id and own != call.id)
            or _begins_another_call(piece, call)
        ):
            call = self._begin(index)
        if own and not call.id:
            self._count_bytes(own)
            call.id = own
        return call

    def _begin(self, index: int) -> _PartialToolCall:
        if len(self._every) >= MOST_CALLS:
            raise BadStream("more tool calls than one answer makes")
        call = self._at[index] = _PartialToolCall(index)
        self._every.append(call)
        return call

    def _add(self, call: _PartialToolCall, function: Any) -> None:
        if not isinstance(function, dict):
            return
        name, arguments = function.get("name"), _arguments_text(function.get("arguments"))
        if name and call.name == [name] and call.arguments == [arguments]:
            return  # the whole call once more, as some endpoints end a stream
        for text, parts in ((name, call.name), (arguments, call.arguments)):
            if isinstance(text, str) and text:
                self._count_bytes(text)
                parts.append(text)


@dataclass(frozen=True)
class ModelAnswer:
    """Tokens are None where the endpoint did not count them. `call` is the first of the tool calls
    and `more` are those behind it; `cut` says that the answer reached its token limit."""

    text: str
    call: ModelToolCall | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    more: tuple[ModelToolCall, ...] = ()
    cut: bool = False


class ModelFailure(Exception):
    """No answer. `began` says whether the model may have started one."""

    def __init__(self, code: str, message: str, *, began: bool) -> None:
        super().__init__(message)
        self.code, self.message, self.began = code, message, began


@dataclass(frozen=True)
class AnswerLimits:
    """Of an answer."""

    max_tokens: int
    max_bytes: int


class _AnswerReader:
    def __init__(self, limits: AnswerLimits, tell: Callable[[str], None]) -> None:
        self._limits, self._tell = limits, tell
        self._parts: list[str] = []
        self._calls = ModelToolCalls(self._count_bytes)
        self._bytes = 0
        self._usage: dict[str, Any] = {}
        self.finished = self._cut = False

    def take(self, chunk: Any) -> None:
        if not isinstance(chunk, dict):
            raise BadStream("a chunk is no object")
        if chunk.get("error"):
            raise Broken("the endpoint reported an error")
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        choices = chunk.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else ():
            self._take_choice(choice)

    def _take_choice(self, choice: Any) -> None:
        if not isinstance(choice, dict):
            raise BadStream("a choice is no object")
        part = choice.get("delta") or choice.get("message")
        if isinstance(part, dict):
            self._take_content(part.get("content"))
            self._take_words(part.get("refusal"))
            self._take_calls(part.get("tool_calls"))
        if reason := choice.get("finish_reason"):
            self.finished = True
            self._cut = self._cut or str(reason).lower() in _CUT_REASONS

    def _take_content(self, content: Any) -> None:
        """A text, or a list of parts, of which those with reasoning are left out. Reasoning in a
        field of its own, such as `reasoning_content`, is never read."""
        for part in content if isinstance(content, list) else [content]:
            if not isinstance(part, dict):
                self._take_words(part)
            elif part.get("type", "text") in _TEXT_PARTS:
                self._take_words(part.get("text", part.get("refusal")))

    def _take_words(self, words: Any) -> None:
        if isinstance(words, str) and words:
            text = _CONTROL.sub("\ufffd", words)
            self._count_bytes(text)
            self._parts.append(text)
            self._tell(text)

    def _take_calls(self, pieces: Any) -> None:
        if isinstance(pieces, list):
            self._calls.take(pieces)

    def _count_bytes(self, text: str) -> None:
        self._bytes += len(text.encode())
        if self._bytes > self._limits.max_bytes:
            raise ModelFailure(
                "OUTPUT_LIMIT", "The model's answer is longer than the tool may return.", began=True
            )

    def answer(self) -> ModelAnswer:
        """A question and a nonempty answer have some tokens: a count of zero is no count."""
        calls = self._calls.in_order()
        call = calls[0] if calls else None
        input_tokens = _token_count(self._usage, "prompt_tokens", least=1)
        output_tokens = _token_count(
            self._usage, "completion_tokens", least=1 if self._parts or call else 0
        )
        if input_tokens is None or output_tokens is None:
            input_tokens = output_tokens = None
        return ModelAnswer(
            "".join(self._parts), call, input_tokens, output_tokens, calls[1:], self._cut
        )


def event_data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of one event after the other. Raises `BadStream`."""
    reader = EventReader(LONGEST_EVENT)
    try:
        for piece in pieces:
            for event in reader.feed(piece):
                yield event.data
    except EventTooLong as error:
        raise BadStream(str(error)) from None


def read_answer(
    answer: UpstreamResponse, limits: AnswerLimits, tell: Callable[[str], None]
) -> ModelAnswer:
    """Each piece of the text is passed to `tell` as it arrives. Raises `ModelFailure`, `Broken`
    and the errors of an invalid stream or its JSON."""
    reader = _AnswerReader(limits, tell)
    if answer.headers.get("content-type", "").startswith("application/json"):
        reader.take(strict_json.parse(answer.body(6 * limits.max_bytes + LONGEST_EVENT)))
        return reader.answer()
    for chunk in _answer_chunks(answer, limits):
        reader.take(chunk)
    if not reader.finished:
        raise Broken("the stream ended before the answer did")
    return reader.answer()


def _arguments_text(arguments: Any) -> Any:
    """Some endpoints send the object itself."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _begins_another_call(piece: dict[str, Any], call: _PartialToolCall) -> bool:
    """For endpoints that give several calls one index and no id: a name begins another call where
    the arguments of the one before were complete in one piece."""
    function = piece.get("function")
    if not isinstance(function, dict) or not function.get("name") or len(call.arguments) != 1:
        return False
    if call.name == [function["name"]] and call.arguments == [
        _arguments_text(function.get("arguments"))
    ]:
        return False
    try:
        strict_json.parse(call.arguments[0])
    except strict_json.BadJson:
        return False
    return True


def _answer_chunks(answer: UpstreamResponse, limits: AnswerLimits) -> Iterator[Any]:
    most = _CHUNKS_WITHOUT_CONTENT + _CHUNKS_PER_TOKEN * limits.max_tokens
    for count, data in enumerate(event_data(answer.pieces)):
        if data == b"[DONE]":
            answer.drain()
            return
        if count >= most:
            raise ModelFailure("MODEL_ENDLESS", "The model did not come to an end.", began=True)
        yield strict_json.parse(data)


def _token_count(usage: dict[str, Any], name: str, *, least: int) -> int | None:
    value = usage.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_TOKENS:
        return None
    return value
