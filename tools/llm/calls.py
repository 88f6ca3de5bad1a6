"""Assembles tool calls from the pieces of a stream.

A piece belongs to a call by its index, in a whole answer by its place in the list. Some endpoints
give several calls one index: a new id then begins a new call, so that pieces of calls are never
mixed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.values import strict_json
from tools.llm.sse import BadStream

MOST_CALLS = 128
MOST_INDEX = 10_000


@dataclass(frozen=True)
class ModelToolCall:
    """A call as the model wrote it: the name may be no tool's, the arguments no JSON."""

    name: str
    arguments: str


@dataclass
class _Coming:
    index: int
    id: str = ""
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


class ModelToolCalls:
    """`weigh` is called with all text that is kept."""

    def __init__(self, weigh: Callable[[str], None]) -> None:
        self._weigh = weigh
        self._every: list[_Coming] = []
        self._at: dict[int, _Coming] = {}  # the latest of each index

    def take(self, pieces: list[Any]) -> None:
        """Raises `BadStream`."""
        for place, piece in enumerate(pieces):
            if not isinstance(piece, dict):
                raise BadStream("a tool call is no object")
            self._add(self._call_of(piece, place), piece.get("function"))

    def first(self) -> ModelToolCall | None:
        return next(iter(self.in_order()), None)

    def in_order(self) -> tuple[ModelToolCall, ...]:
        """All of them, by their indexes; those of one index as they came."""
        ordered = sorted(self._every, key=lambda call: call.index)
        return tuple(ModelToolCall("".join(one.name), "".join(one.arguments)) for one in ordered)

    def _call_of(self, piece: dict[str, Any], place: int) -> _Coming:
        index, given = piece.get("index"), piece.get("id")
        index = place if index is None else index
        if type(index) is not int or not 0 <= index <= MOST_INDEX:
            raise BadStream("a tool call has no index")
        own = given if isinstance(given, str) else ""
        call = self._at.get(index)
        if call is None or (own and call.id and own != call.id) or _is_another(piece, call):
            call = self._begin(index)
        if own and not call.id:
            self._weigh(own)
            call.id = own
        return call

    def _begin(self, index: int) -> _Coming:
        if len(self._every) >= MOST_CALLS:
            raise BadStream("more tool calls than one answer makes")
        call = self._at[index] = _Coming(index)
        self._every.append(call)
        return call

    def _add(self, call: _Coming, function: Any) -> None:
        if not isinstance(function, dict):
            return
        name, arguments = function.get("name"), _text_of(function.get("arguments"))
        if name and call.name == [name] and call.arguments == [arguments]:
            return  # the whole call once more, as some endpoints end a stream
        for said, kept in ((name, call.name), (arguments, call.arguments)):
            if isinstance(said, str) and said:
                self._weigh(said)
                kept.append(said)


def _text_of(arguments: Any) -> Any:
    """Some endpoints send the object itself."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _is_another(piece: dict[str, Any], call: _Coming) -> bool:
    """For endpoints that give several calls one index and no id: a name begins another call where
    the arguments of the one before were complete in one piece."""
    function = piece.get("function")
    if not isinstance(function, dict) or not function.get("name") or len(call.arguments) != 1:
        return False
    if call.name == [function["name"]] and call.arguments == [_text_of(function.get("arguments"))]:
        return False
    try:
        strict_json.parse(call.arguments[0])
    except strict_json.BadJson:
        return False
    return True
