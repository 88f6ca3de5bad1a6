"""An OpenAI-compatible endpoint on loopback that answers as a test wants it, also wrongly.

with serving() as model:
    model.says("Hel", "lo", tokens=(10, 2))
    ...
    assert model.questions[0]["messages"][-1]["content"] == "…"

As an agent's model it plays a script, a move for each question, or answers what it is asked:

    model.plays("Action: add\nArguments: {}", calls("add", '{"a": 1}', thought="Hm."), "Answer: 2")
    model.answers_by(lambda question: "Answer: " + question["messages"][-1]["content"])
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.stubs import web
from tests.stubs.web import Raw, Reply, Seen

PATH = "/v1/chat/completions"
STREAM = [("Content-Type", "text/event-stream")]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_call_numbers = itertools.count(1)


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def piece(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def end(tokens: tuple[int, int] | None) -> bytes:
    """The end of an answer: why it ended, what was counted, and that this was all."""
    last = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]} if tokens else None
    counted = event({"choices": [], "usage": usage}) if tokens else b""
    return last + counted + b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Native:
    """A tool call in the protocol's own form; the arguments are any text."""

    name: str
    arguments: str
    thought: str


def calls(name: str, arguments: str = "{}", thought: str = "") -> Native:
    return Native(name, arguments, thought)


type Move = str | Native


type Play = Move | Reply | Raw


@dataclass(frozen=True)
class Manner:
    """How a move goes out: in pieces of so many letters, every byte a chunk of its own, or not as a
    stream at all."""

    letters: int = 8
    bytewise: bool = False
    whole: bool = False
    tokens: tuple[int, int] | None = (10, 5)

    def reply(self, play: Play) -> Reply | Raw:
        if isinstance(play, Reply | Raw):
            return play
        if self.whole:
            return Reply(200, [("Content-Type", "application/json")], self._document(play))
        pieces = [*self._pieces(play), end(self.tokens)]
        return Reply(200, STREAM, _bytewise(pieces) if self.bytewise else pieces)

    def _document(self, move: Move) -> bytes:
        choice = {"message": _message(move), "finish_reason": "stop"}
        answer: dict[str, Any] = {"choices": [choice]}
        if self.tokens:
            counts = {"prompt_tokens": self.tokens[0], "completion_tokens": self.tokens[1]}
            answer["usage"] = counts
        return json.dumps(answer).encode()

    def _pieces(self, move: Move) -> Iterator[bytes]:
        if isinstance(move, str):
            yield from map(piece, self._cut(move))
            return
        yield from map(piece, self._cut(move.thought))
        yield called({"index": 0, "id": "call_1", "type": "function"})
        for name in self._cut(move.name):
            yield called({"index": 0, "function": {"name": name}})
        for arguments in self._cut(move.arguments):
            yield called({"index": 0, "function": {"arguments": arguments}})

    def _cut(self, text: str) -> list[str]:
        return [text[at : at + self.letters] for at in range(0, len(text), self.letters)]


def called(*tool_calls: dict[str, Any]) -> bytes:
    """A piece of a stream that brings pieces of tool calls."""
    delta = {"tool_calls": list(tool_calls)}
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def _message(move: Move) -> dict[str, Any]:
    if isinstance(move, str):
        return {"role": "assistant", "content": move}
    function = {"name": move.name, "arguments": move.arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": move.thought or None, "tool_calls": [call]}


def _bytewise(pieces: Iterable[bytes]) -> list[bytes]:
    return [bytes([byte]) for one in pieces for byte in one]


class Endpoint:
    def __init__(self, server: web.Web) -> None:
        self.web = server
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self._turn = threading.Lock()

    @property
    def url(self) -> str:
        return self.web.url("/v1")

    @property
    def questions(self) -> list[dict[str, Any]]:
        return [json.loads(seen.body) for seen in list(self.web.seen)]

    def answers(self, *replies: Reply | Raw) -> None:
        """One after the other; the last again and again."""
        left = list(replies)

        def reply(_: Seen) -> Reply | Raw:
            with self._turn:
                return left.pop(0) if len(left) > 1 else left[0]

        self.web.replies[PATH] = reply

    def plays(self, *moves: Play, **manner: Any) -> None:
        """One for each question; the last again and again. See `Manner` for the rest."""
        self.answers(*map(Manner(**manner).reply, moves))

    def answers_by(self, answer: Callable[[dict[str, Any]], Play], **manner: Any) -> None:
        """What the function makes of the question's body."""
        how = Manner(**manner)
        self.web.replies[PATH] = lambda seen: how.reply(answer(json.loads(seen.body)))

    def streams(self, pieces: Iterable[bytes]) -> None:
        self.answers(Reply(200, STREAM, pieces))

    def says(self, *words: str, tokens: tuple[int, int] | None = (10, 5)) -> None:
        self.streams([*map(piece, words), end(tokens)])

    def echoes(self) -> None:
        """The last message, as it was asked."""

        def reply(seen: Seen) -> Reply:
            said = json.loads(seen.body)["messages"][-1]["content"]
            return Reply(200, STREAM, [piece(said), end((len(said), len(said)))])

        self.web.replies[PATH] = reply

    def hangs(self, *words: str) -> None:
        """Says this much, and the rest when `go_on` is set."""

        def pieces() -> Iterator[bytes]:
            yield b": here\n\n"
            yield from map(piece, words)
            self.asked.set()
            self.go_on.wait(60)
            yield end((1, 1))

        self.streams(pieces())

    def is_silent(self) -> None:
        """Takes the question and says nothing until `go_on` is set."""

        def reply(_: Seen) -> Reply:
            self.asked.set()
            self.go_on.wait(60)
            return Reply(500)

        self.web.replies[PATH] = reply

    def breaks_off(self, *words: str) -> None:
        self.answers(Raw([_HEAD, *map(piece, words)]))

    def never_ends(self) -> None:
        def pieces() -> Iterator[bytes]:
            while not self.go_on.is_set():
                yield piece("x")

        self.streams(pieces())


@contextmanager
def serving() -> Iterator[Endpoint]:
    with web.serving() as server:
        endpoint = Endpoint(server)
        try:
            yield endpoint
        finally:
            endpoint.go_on.set()


def tool_call(name: str, arguments: Any) -> dict[str, Any]:
    """One call of a model; arguments that are a text are sent as they stand."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    return {"id": f"call_{next(_call_numbers)}", "type": "function", "function": function}


def tool_calls_reply(*wanted: dict[str, Any]) -> Reply:
    return _completion_reply({"content": None, "tool_calls": list(wanted)}, "tool_calls")


def text_reply(text: str) -> Reply:
    return _completion_reply({"content": text}, "stop")


def _completion_reply(message: dict[str, Any], reason: str) -> Reply:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": reason,
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return Reply(200, [("Content-Type", "application/json")], json.dumps(body).encode())
