"""One move of an agent, read out of what a model said: an action, an answer, or a flaw.

Nothing here guesses. The first action wins and nothing behind it is believed; what a model made up
in a tool's place makes an answer worth nothing; an action has its own arguments or none at all.
A flaw is written for the model, which reads it as what came of its move.

    Thought: free text, also on several lines
    Action: name_of_a_tool
    Arguments: {"a": "JSON object"}

or, in place of the action, `Answer:` and everything to the end. A label counts only where a line
begins with it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.definitions import strict_json
from tools.definitions.names import TOOL_NAME
from tools.llm.calls import Call

OBSERVATION = "Observation:"
_THOUGHT, _ACTION, _ANSWER = "Thought:", "Action:", "Answer:"
_LABELS = (_THOUGHT, _ACTION, _ANSWER, OBSERVATION)
_ROOM = 8  # levels of what arguments become a part of: the output, the next question
_LONGEST = max(map(len, _LABELS))
_NAME = re.compile(rf"{_ACTION}[ \t]*+([^\n]*)")
_ARGUMENTS = re.compile(r"[ \t\r\n]*\nArguments:[ \t\r\n]*(?:```[A-Za-z]*[ \t\r\n]*)?(?=\{)")
_MADE_UP = re.compile(rf"^{OBSERVATION}", re.MULTILINE)

MADE_UP = (
    "You wrote an Observation yourself. Observations come from tools alone, after an action; "
    "nothing was called, and no answer was taken. Write one Action with its Arguments, or an "
    "Answer, and stop there."
)
NEITHER = (
    "There was neither an Action nor an Answer at the beginning of a line. Write one Action with "
    "its Arguments, or an Answer."
)
SILENT = "You said nothing. Call a tool or answer."
NAMELESS = (
    "The action named no tool: a name is letters, digits, '_', '.' and '-', and stands alone. "
    "Nothing was called."
)


@dataclass(frozen=True)
class Action:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Move:
    """`text` is all that was said. One of `action`, `answer` and `flaw` is there."""

    text: str
    thought: str = ""
    action: Action | None = None
    answer: str | None = None
    flaw: str | None = None


def plain(text: str) -> Move:
    """What is asked for in words alone is answered by them."""
    return Move(text, answer=text) if text.strip() else Move(text, flaw=SILENT)


def native(text: str, call: Call | None) -> Move:
    """Of a model that calls tools in a form of its own: words beside a call are its thought."""
    if call is None:
        return plain(text)
    return Move(text, text.strip(), **_decided(call.name, call.arguments, strict_json.parse))


class Reader:
    """Of the text format. The move is the same however the text is cut.

    `tell` is given the thought piece by piece, and nothing else.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell = tell
        self._said: list[str] = []
        self._thought: list[str] = []
        self._open = ""  # the beginning of a line that may yet become a label
        self._line_begins = True
        self._decided: list[str] | None = None  # what ended the thought, and all behind it

    def feed(self, text: str) -> None:
        self._said.append(text)
        if self._decided is None:
            self._think(self._open + text)
        else:
            self._decided.append(text)

    def close(self) -> Move:
        self._add(self._open)
        text, thought = "".join(self._said), "".join(self._thought).rstrip()
        return Move(text, thought, **_end("".join(self._decided or ())))

    def _think(self, text: str) -> None:
        at, self._open = 0, ""
        while at < len(text):
            if self._line_begins:
                label = next((one for one in _LABELS if text.startswith(one, at)), None)
                if label is None and _may_become_one(text[at : at + _LONGEST]):
                    self._open = text[at:]
                    return
                if label not in (None, _THOUGHT):
                    self._decided = [text[at:]]
                    return
                at += len(label or "")
            end = text.find("\n", at) + 1 or len(text)
            self._add(text[at:end])
            self._line_begins = text[end - 1] == "\n"
            at = end

    def _add(self, text: str) -> None:
        text = text if self._thought else text.lstrip()
        if text:
            self._thought.append(text)
            self._tell(text)


def _may_become_one(beginning: str) -> bool:
    return any(label.startswith(beginning) for label in _LABELS)


def _end(text: str) -> dict[str, Any]:
    if text.startswith(_ACTION):
        return _called(text)
    if _MADE_UP.search(text):
        return {"flaw": MADE_UP}
    answer = text.removeprefix(_ANSWER).strip()
    return {"answer": answer} if answer else {"flaw": NEITHER}


def _called(text: str) -> dict[str, Any]:
    line = _NAME.match(text)
    name, end = (line[1].strip(), line.end()) if line else ("", 0)
    arguments = _ARGUMENTS.match(text, end)
    return _decided(name, text[arguments.end() :] if arguments else "", strict_json.leading)


def _decided(name: str, arguments: str, read: Callable[[str], Any]) -> dict[str, Any]:
    if not TOOL_NAME.fullmatch(name):
        return {"flaw": NAMELESS}
    if not arguments.strip():
        return {"flaw": _no_arguments(name)}
    try:
        value = read(arguments)
        strict_json.check(value, depth=_ROOM)
    except strict_json.BadJson as error:
        return {"flaw": f"The arguments of {name} were not taken: {error}. Nothing was called."}
    if not isinstance(value, dict):
        return {"flaw": f"The arguments of {name} are no JSON object. Nothing was called."}
    return {"action": Action(name, value)}


def _no_arguments(name: str) -> str:
    return (
        f"The action {name} had no arguments. Give it a JSON object of its own, {{}} where it "
        "needs none. Nothing was called."
    )
