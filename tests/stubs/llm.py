"""An OpenAI-compatible endpoint on loopback that answers as a test wants it, also wrongly.

with serving() as model:
    model.says("Hel", "lo", tokens=(10, 2))
    ...
    assert model.questions[0]["messages"][-1]["content"] == "…"
"""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.stubs import web
from tests.stubs.web import Raw, Reply, Seen

PATH = "/v1/chat/completions"
STREAM = [("Content-Type", "text/event-stream")]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def piece(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def end(tokens: tuple[int, int] | None) -> bytes:
    """The end of an answer: why it ended, what was counted, and that this was all."""
    last = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]} if tokens else None
    counted = event({"choices": [], "usage": usage}) if tokens else b""
    return last + counted + b"data: [DONE]\n\n"


class Endpoint:
    def __init__(self, server: web.Web) -> None:
        self.web = server
        self.asked = threading.Event()
        self.go_on = threading.Event()

    @property
    def url(self) -> str:
        return self.web.url("/v1")

    @property
    def questions(self) -> list[dict[str, Any]]:
        return [json.loads(seen.body) for seen in self.web.seen]

    def answers(self, *replies: Reply | Raw) -> None:
        """One after the other; the last again and again."""
        left = list(replies)

        def reply(_: Seen) -> Reply | Raw:
            return left.pop(0) if len(left) > 1 else left[0]

        self.web.replies[PATH] = reply

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
