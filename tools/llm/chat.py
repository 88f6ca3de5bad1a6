"""One question to a model behind an OpenAI-compatible endpoint, answered as a stream.

What comes is believed in nothing: its size, its count and its time are bounded, and half an answer
is none. The key is in a header and nowhere else.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from config.upstreams import Answer, Bounds, Broken, Unreachable, Upstream
from tools.definitions import strict_json
from tools.llm import sse

log = logging.getLogger(__name__)
ATTEMPTS = 3
LONGEST_PAUSE_S = 10.0
_LONGEST_COMPLAINT = 2_000
_CHUNKS_BESIDE = 1_000  # that say nothing: roles, pings, usage
_CHUNKS_PER_TOKEN = 4
_MOST_TOKENS = 10**9
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BUSY = frozenset({429, 503})
_SECONDS = re.compile(r"\d{1,4}")


@dataclass(frozen=True)
class Model:
    """`url` is the endpoint's base, `https://host/v1` for instance."""

    url: str
    name: str
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Question:
    prompt: str
    system: str | None
    max_tokens: int
    max_bytes: int  # of the answer


@dataclass(frozen=True)
class Said:
    """Tokens are None where the endpoint did not count them."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class Failure(Exception):
    """No answer. `began` says whether the model may have worked on one."""

    def __init__(self, code: str, message: str, *, began: bool) -> None:
        super().__init__(message)
        self.code, self.message, self.began = code, message, began


def ask(
    upstream: Upstream,
    model: Model,
    question: Question,
    bounds: Bounds,
    tell: Callable[[str], None],
) -> Said:
    """Each piece of the answer goes to `tell` as it comes. Raises `Failure`, and what ends a run:
    `Stopped` and `TimeUp`."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with upstream.post(*_request(model, question), bounds) as answer:
                if answer.status == 200:
                    return _read(answer, question, tell)
                pause_s = _refusal(answer, model, last=attempt == ATTEMPTS)
        except Unreachable as error:
            log.error("the model's endpoint cannot be reached: %s", error)
            raise Failure(
                "MODEL_UNAVAILABLE", "The model cannot be reached. Try again later.", began=False
            ) from None
        except (Broken, sse.BadStream, strict_json.BadJson) as error:
            log.error("the answer of model %s was cut or cannot be read: %s", model.name, error)
            raise Failure(
                "MODEL_CUT", "The model's answer did not come to its end. Try again.", began=True
            ) from None
        bounds.pause(pause_s)
    raise AssertionError("the last attempt returns or raises")


def _request(model: Model, question: Question) -> tuple[str, dict[str, str], bytes]:
    messages = [{"role": "user", "content": question.prompt}]
    if question.system:
        messages.insert(0, {"role": "system", "content": question.system})
    body = {
        "model": model.name,
        "messages": messages,
        "max_tokens": question.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if model.key:
        headers["Authorization"] = f"Bearer {model.key}"
    return f"{model.url.rstrip('/')}/chat/completions", headers, json.dumps(body).encode()


def _refusal(answer: Answer, model: Model, *, last: bool) -> float:
    """How long to wait before the next attempt. Raises `Failure` where there is none."""
    status = answer.status
    complaint = answer.body(_LONGEST_COMPLAINT).decode("utf-8", "replace")
    if model.key:
        complaint = complaint.replace(model.key, "***")
    log.error("the endpoint of model %s answered %d: %.300r", model.name, status, complaint)
    if status in {401, 403}:
        raise Failure(
            "MODEL_REFUSED",
            "The model's endpoint refused this installation; its operators have a record of it.",
            began=False,
        )
    if status in _BUSY:
        if last:
            raise Failure("MODEL_BUSY", "The model is busy. Try again later.", began=False)
        return _pause_s(answer)
    if 400 <= status < 500:
        raise Failure(
            "MODEL_REJECTED",
            "The model's endpoint did not take the question; its operators have a record of it.",
            began=False,
        )
    raise Failure("MODEL_UNAVAILABLE", "The model failed to answer. Try again later.", began=True)


def _pause_s(answer: Answer) -> float:
    given = answer.headers.get("retry-after", "")
    return min(float(given), LONGEST_PAUSE_S) if _SECONDS.fullmatch(given) else 1.0


def _read(answer: Answer, question: Question, tell: Callable[[str], None]) -> Said:
    if answer.headers.get("content-type", "").startswith("application/json"):
        return _read_whole(answer, question, tell)
    told = _Telling(question, tell)
    for chunk in _chunks(answer, question):
        told.take(chunk)
    if not told.finished:
        raise Broken("the stream ended before the answer did")
    return told.said()


def _read_whole(answer: Answer, question: Question, tell: Callable[[str], None]) -> Said:
    """Of an endpoint that does not stream."""
    document = strict_json.parse(answer.body(6 * question.max_bytes + sse.LONGEST_EVENT))
    told = _Telling(question, tell)
    told.take(document)
    return told.said()


def _chunks(answer: Answer, question: Question) -> Iterator[Any]:
    most = _CHUNKS_BESIDE + _CHUNKS_PER_TOKEN * question.max_tokens
    for count, data in enumerate(sse.data_of(answer.pieces)):
        if data == b"[DONE]":
            answer.drain()
            return
        if count >= most:
            raise Failure("MODEL_ENDLESS", "The model did not come to an end.", began=True)
        yield strict_json.parse(data)


class _Telling:
    """An answer as it comes together."""

    def __init__(self, question: Question, tell: Callable[[str], None]) -> None:
        self._question, self._tell = question, tell
        self._parts: list[str] = []
        self._bytes = 0
        self._usage: dict[str, Any] = {}
        self.finished = False

    def take(self, chunk: Any) -> None:
        if not isinstance(chunk, dict):
            raise sse.BadStream("a chunk is no object")
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
            raise sse.BadStream("a choice is no object")
        part = choice.get("delta") or choice.get("message") or {}
        text = part.get("content") if isinstance(part, dict) else None
        if isinstance(text, str) and text:
            self._add(_CONTROL.sub("\ufffd", text))
        if choice.get("finish_reason"):
            self.finished = True

    def _add(self, text: str) -> None:
        self._bytes += len(text.encode())
        if self._bytes > self._question.max_bytes:
            raise Failure(
                "OUTPUT_LIMIT", "The model's answer is longer than the tool may return.", began=True
            )
        self._parts.append(text)
        self._tell(text)

    def said(self) -> Said:
        """A question is some tokens, and so is an answer that is not empty: nobody counted none."""
        came = _count(self._usage, "prompt_tokens", least=1)
        went = _count(self._usage, "completion_tokens", least=1 if self._parts else 0)
        counts = (None, None) if came is None or went is None else (came, went)
        return Said("".join(self._parts), *counts)


def _count(usage: dict[str, Any], name: str, *, least: int) -> int | None:
    value = usage.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_TOKENS:
        return None
    return value
