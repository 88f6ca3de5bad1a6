"""Parses one move of an agent from a model's reply: an action, an answer, or an error.

Nothing is guessed. The first action wins and text after it is ignored; an invented tool result
invalidates an answer; an action has its own arguments or none at all. A flaw is written for the
model, which reads it as the observation of its move.

    Thought: free text, also on several lines
    Action: name_of_a_tool
    Arguments: {"a": "JSON object"}

or, in place of the action, `Answer:` and everything to the next label or the end. A label counts
only where a line begins with it; emphasis, a fence around the reply and quotes around the name are
read past. Text in a block of reasoning (`reasoning.py`) is none of these.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tools.definitions.texts.names import TOOL_NAME
from tools.definitions.values import strict_json
from tools.llm import reasoning
from tools.llm.model_answers import ModelToolCall

OBSERVATION = "Observation:"
_THOUGHT, _ACTION, _ANSWER, _ARGUMENTS = "Thought", "Action", "Answer", "Arguments"
_OBSERVATION = OBSERVATION.removesuffix(":")
_LABEL_NAMES = {
    **{word: word for word in (_THOUGHT, _ACTION, _ANSWER, _ARGUMENTS, _OBSERVATION)},
    "Final Answer": _ANSWER,
    "Action Input": _ARGUMENTS,
}
_EMPTY_ARGUMENTS = frozenset({"", "null", '""', "[]"})
_SURROUNDING_LEVELS = 8  # nesting levels around arguments: the output, the next question


def _label_forms(word: str) -> list[str]:
    """A label as models write it: bare, emphasized, or as a heading."""
    emphasized = [(mark + word + ":" + mark, mark + word + mark + ":") for mark in ("*", "**", "_")]
    headings = [f"{'#' * level} {word}:" for level in (1, 2, 3, 4)]
    return [word + ":", *(form for pair in emphasized for form in pair), *headings]


_LABELS = {
    " " * indent + form: label
    for word, label in _LABEL_NAMES.items()
    for form in _label_forms(word)
    for indent in range(4)
}
_LONGEST_LABEL = max(map(len, _LABELS))
_LABEL_BEGINNINGS = frozenset(form[:end] for form in _LABELS for end in range(1, len(form)))
_ANY_LABEL = "|".join(re.escape(form) for form in sorted(_LABELS, key=len, reverse=True))
_LABEL = re.compile(_ANY_LABEL)
_LABEL_LINE = re.compile(rf"^(?:{_ANY_LABEL})", re.MULTILINE)
_ARGUMENTS_LABEL = "|".join(
    re.escape(form) for form in sorted(_LABELS, key=len, reverse=True)
    if _LABELS[form] == _ARGUMENTS
)  # fmt: skip
_NAME = re.compile(r"[ \t]*+([^\n]*)")
_ARGUMENTS_BEGIN = re.compile(
    rf"[ \t\r\n]*\n(?:{_ARGUMENTS_LABEL})[ \t\r\n]*(?:```[A-Za-z]*[ \t\r\n]*|`)?(?=\{{)"
)
_INVENTED_OBSERVATION = re.compile(
    "|".join(f"^{re.escape(f)}" for f, label in _LABELS.items() if label == _OBSERVATION),
    re.MULTILINE,
)
_FENCE = re.compile(r" {0,3}```[A-Za-z]{0,20}[ \t\r]{0,8}\n")
_FENCE_BEGINS = re.compile(r" {0,3}`{1,3}|`{0,3} {0,3}```[A-Za-z]{0,20}[ \t\r]{0,8}")
_FENCE_LINE = re.compile(r"^[ ]{0,3}```.*$", re.MULTILINE)
_QUOTES = " \t\r\"'`*“”‘’«»"
_LONGEST_CALL = 2_000  # characters of a call that is repeated to the model
_MOST_FURTHER = 127  # actions after the first

OBSERVATION_INVENTED = (
    "You wrote an Observation yourself. Observations come from tools alone, after an action; "
    "nothing was called, and no answer was taken. Write one Action with its Arguments, or an "
    "Answer, and stop there."
)
NO_MOVE = (
    "There was neither an Action nor an Answer at the beginning of a line. Write one Action with "
    "its Arguments, or an Answer."
)
REASONING_ONLY = (
    "Your reply was reasoning alone, or its block was never closed. Nothing was called. Reason "
    "less, then call a tool or answer."
)
EMPTY_REPLY = "You said nothing. Call a tool or answer."
NO_TOOL_NAME = (
    "The action named no tool: a name is letters, digits, '_', '.' and '-', and stands alone. "
    "Nothing was called."
)


@dataclass(frozen=True)
class ModelAction:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ModelReply:
    """`text` is the whole reply. Exactly one of `action`, `answer` and `flaw` is set."""

    text: str
    thought: str = ""
    action: ModelAction | None = None
    answer: str | None = None
    flaw: str | None = None
    further: tuple[ModelToolCall, ...] = ()  # calls after the action, which were not made


def parse_text(text: str) -> ModelReply:
    """A reply to a question without tools: its text is the answer."""
    if answer := _visible_text(text):
        return ModelReply(text, answer=answer)
    return ModelReply(text, flaw=REASONING_ONLY if text.strip() else EMPTY_REPLY)


def parse_native(
    text: str, call: ModelToolCall | None, more: tuple[ModelToolCall, ...] = ()
) -> ModelReply:
    """A reply with native tool calls: text beside a call is its thought.

    Where the first of several calls cannot be made, none is.
    """
    if call is None:
        return parse_text(text)
    found = _parse_action(call.name, call.arguments, strict_json.parse, empty={})
    if "flaw" in found:
        calls = "\n".join(map(_call_text, (call, *more)))
        text = f"{text}\n{calls}".strip()
        return ModelReply(text, _visible_text(text.removesuffix(calls)).strip(), **found)
    return ModelReply(text, _visible_text(text).strip(), further=more, **found)


def _visible_text(text: str) -> str:
    """The text that may be shown to a person; empty for reasoning alone."""
    shown = reasoning.visible_text(text)
    return text if shown == text and text.strip() else shown.strip()


def _call_text(call: ModelToolCall) -> str:
    return f"[{call.name[:128]} {call.arguments[:_LONGEST_CALL]}]"


class ModelReplyParser:
    """Of the text format. The move is the same however the text is cut.

    `tell` is called with the thought piece by piece, and nothing else.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell = tell
        self._received: list[str] = []
        self._thought: list[str] = []
        self._open = ""  # the beginning of a line that may yet become a label, or of a tag
        self._line_begins, self._labelled = True, False
        self._dropped = False  # arguments without an action
        self._fenced = False
        self._closing: re.Pattern[str] | None = None  # what ends the reasoning that it is in
        self._label = ""  # what ended the thought
        self._decided: list[str] = []  # all text after it

    def feed(self, text: str) -> None:
        self._received.append(text)
        if not self._label:
            self._think(self._open + text)
        else:
            self._decided.append(text)

    def close(self) -> ModelReply:
        text = "".join(self._received)
        remaining = reasoning.remove_closed_blocks(text)
        answer = reasoning.text_after_closing_tag(remaining)
        if (
            answer != remaining
        ):  # all before it was reasoning whose opening tag the endpoint removed
            reader = ModelReplyParser()
            reader.feed(answer)
            found = reader.close()
            flaw = REASONING_ONLY if found.flaw == NO_MOVE else found.flaw
            return replace(found, text=text, flaw=flaw)
        reasoned = self._closing is not None
        if not reasoned and not _FENCE.fullmatch(self._open + "\n"):
            self._add(self._open)
        thought = "".join(self._thought).rstrip()
        if not self._label and reasoned:
            return ModelReply(text, thought, flaw=REASONING_ONLY)
        end = _outcome(self._label, "".join(self._decided), fenced=self._fenced)
        return ModelReply(text, thought, **end)

    def _think(self, text: str) -> None:
        at, self._open = 0, ""
        while at < len(text):
            if self._closing is not None:
                end = self._closing.search(text, at)
                if end is None:
                    self._open = text[max(at, len(text) - reasoning.LONGEST_TAG) :]
                    return
                at, self._closing = end.end(), None
                continue
            if self._line_begins:
                begun = self._begin_line(text, at)
                if begun is None:
                    return
                if begun > at:
                    at = begun
                    continue
            at = self._take_line(text, at)

    def _begin_line(self, text: str, at: int) -> int | None:
        """The position after the label or fence that begins here, if any; None where more text is
        needed, or the thought has ended."""
        rest = text[at : at + _LONGEST_LABEL]
        fence_begins = _FENCE_BEGINS.fullmatch(text, at) and not self._labelled
        if rest in _LABEL_BEGINNINGS or fence_begins:
            self._open = text[at:]
            return None
        if (fence := _FENCE.match(text, at)) and not self._labelled:
            self._fenced = not self._fenced
            return fence.end()
        label = _LABEL.match(text, at)
        if label is None or (self._labelled and _LABELS[label.group()] != _THOUGHT):
            return at
        return self._begin_label(text, label)

    def _begin_label(self, text: str, label: re.Match[str]) -> int | None:
        kind = _LABELS[label.group()]
        self._dropped, self._labelled = kind == _ARGUMENTS, True
        if kind in (_THOUGHT, _ARGUMENTS):
            return label.end()
        self._label, self._decided = kind, [text[label.end() :]]
        return None

    def _take_line(self, text: str, at: int) -> int:
        """To the end of the line, or of what is known of it, or to a block of reasoning."""
        end = text.find("\n", at) + 1 or len(text)
        opening = reasoning.OPENING.search(text, at, end)
        until = opening.start() if opening else end
        if opening is None and end == len(text) and text[-1] != "\n":
            until = at + reasoning.partial_tag_position(text[at:])
        self._add(text[at:until])
        if opening is not None:
            # After a block a label counts as if the block were not there.
            self._line_begins = self._line_begins and not text[at:until].strip()
            self._closing = reasoning.closing_tag(opening)
            return opening.end()
        self._open = text[until:end]
        if self._open:  # what may yet become a tag is not part of the line yet
            self._line_begins = self._line_begins and not text[at:until].strip()
            return end
        self._line_begins = text[end - 1] == "\n"
        self._labelled = self._labelled and not self._line_begins
        return end

    def _add(self, text: str) -> None:
        text = text if self._thought else text.lstrip()
        if text and not self._dropped:
            self._thought.append(text)
            self._tell(text)


def _outcome(label: str, text: str, *, fenced: bool) -> dict[str, Any]:
    if label == _ACTION:
        found = _action_outcome(text)
        return found if "flaw" in found else found | {"further": _further_actions(text)}
    if label == _OBSERVATION or _INVENTED_OBSERVATION.search(text):
        return {"flaw": OBSERVATION_INVENTED}
    answer = _answer_text(text, fenced=fenced) if label else ""
    return {"answer": answer} if answer else {"flaw": NO_MOVE}


def _answer_text(text: str, *, fenced: bool) -> str:
    """Without labels and reasoning, and without the end of a fence that began before it."""
    text = reasoning.visible_text(text)
    while label := _LABEL.match(text.lstrip()):
        if _LABELS[label.group()] != _ANSWER:
            return ""
        text = text.lstrip()[label.end() :]
    if label := _LABEL_LINE.search(text):
        text = text[: label.start()]
    fences = list(_FENCE_LINE.finditer(text))
    if fenced and len(fences) % 2:
        text = text[: fences[-1].start()]
    return text.strip()


def _action_outcome(text: str) -> dict[str, Any]:
    return _parse_action(*_split_action(text), strict_json.parse_leading)


def _split_action(text: str) -> tuple[str, str]:
    """The name after a label of an action, and the text from the beginning of its arguments."""
    line = _NAME.match(text)
    name, end = (line[1].strip(_QUOTES), line.end()) if line else ("", 0)
    arguments = _ARGUMENTS_BEGIN.match(text, end)
    return name, text[arguments.end() :] if arguments else ""


def _further_actions(text: str) -> tuple[ModelToolCall, ...]:
    """The actions after the first. An observation that the model invented ends them, and no label
    begins a line within the arguments of the first, for JSON has no such line."""
    text = reasoning.visible_text(text)
    if made_up := _INVENTED_OBSERVATION.search(text):
        text = text[: made_up.start()]
    labels = [*_LABEL_LINE.finditer(text)]
    ends = [*(label.start() for label in labels[1:]), len(text)]
    found = list[ModelToolCall]()
    for at, label in enumerate(labels):
        if _LABELS[label.group()] == _ACTION and len(found) < _MOST_FURTHER:
            with_arguments = labels[at + 1 : at + 2]
            goes_on = with_arguments and _LABELS[with_arguments[0].group()] == _ARGUMENTS
            name, arguments = _split_action(text[label.end() : ends[at + bool(goes_on)]])
            found.append(ModelToolCall(name[:128], arguments.strip("` \t\r\n")[:_LONGEST_CALL]))
    return tuple(found)


def _parse_action(
    name: str,
    arguments: str,
    read: Callable[[str], Any],
    empty: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`empty` is the value of empty arguments; None where they are an error."""
    if not TOOL_NAME.fullmatch(name):
        return {"flaw": NO_TOOL_NAME}
    if arguments.strip() in _EMPTY_ARGUMENTS:
        return (
            {"flaw": _missing_arguments_flaw(name)}
            if empty is None
            else {"action": ModelAction(name, empty)}
        )
    try:
        value = read(arguments)
        strict_json.check(value, depth=_SURROUNDING_LEVELS)
    except strict_json.BadJson as error:
        return {"flaw": f"The arguments of {name} were not taken: {error}. Nothing was called."}
    if not isinstance(value, dict):
        return {"flaw": f"The arguments of {name} are no JSON object. Nothing was called."}
    return {"action": ModelAction(name, value)}


def _missing_arguments_flaw(name: str) -> str:
    return (
        f"The action {name} had no arguments. Give it a JSON object of its own, {{}} where it "
        "needs none. Nothing was called."
    )
