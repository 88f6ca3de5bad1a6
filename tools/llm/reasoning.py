"""Filters blocks of reasoning from the text of a model: `<think>` and the tags that other models
use for it.

Their content is neither an instruction nor an answer. A block without its end reaches to the end of
the text. Where a chat template has already written the opening tag, the text has the closing one
alone: everything before it is reasoning.
"""

import re
from collections.abc import Callable

Tell = Callable[[str], None]
_TAG_NAMES = "think|thinking|thought|thoughts|reasoning|reason|reflection|scratchpad"
OPENING = re.compile(
    rf"(?<!`)(?:<(?P<tag>{_TAG_NAMES})[ \t]*>|(?P<bracket>\[THINK\])|(?P<triangle>◁think▷)"
    r"|(?P<channel><\|channel\|>(?:analysis|commentary)<\|message\|>))",
    re.IGNORECASE,
)
LONGEST_TAG = 40
_TAG_STARTS = "<[◁"
_PARTIAL_TAG = re.compile(
    r"<[a-z]{0,12}[ \t]{0,8}|\[[a-z]{0,5}|◁[a-z]{0,5}|<\|[a-z|<>]{0,36}", re.IGNORECASE
)
_CLOSINGS = {
    "bracket": re.compile(r"\[/THINK\]", re.IGNORECASE),
    "triangle": re.compile("◁/think▷"),
    "channel": re.compile(r"<\|end\|>|<\|channel\|>final<\|message\|>"),
}
_CLOSING_ALONE = re.compile(
    rf"^[ \t]*(?:</(?:{_TAG_NAMES})[ \t]*>|\[/THINK\]|◁/think▷)"
    rf"|(?:</(?:{_TAG_NAMES})[ \t]*>|\[/THINK\]|◁/think▷)[ \t\r]*$",
    re.IGNORECASE | re.MULTILINE,
)


def closing_tag(opening: re.Match[str]) -> re.Pattern[str]:
    """The tag that ends a block."""
    if tag := opening["tag"]:
        return re.compile(rf"</{tag}[ \t]*>", re.IGNORECASE)
    return _CLOSINGS[str(opening.lastgroup)]


def partial_tag_position(text: str) -> int:
    """The position of a possible partial opening tag at the end of a text; its length if there is
    none."""
    for at in range(max(0, len(text) - LONGEST_TAG), len(text)):
        if text[at] in _TAG_STARTS and _PARTIAL_TAG.fullmatch(text, at):
            return at
    return len(text)


def visible_text(text: str) -> str:
    """Without its blocks. A text that is a JSON object from its beginning has none."""
    if text.lstrip()[:1] == "{":
        return text
    return text_after_closing_tag(_remove_blocks(text))


def text_after_closing_tag(text: str) -> str:
    """The text after the last closing tag without a block."""
    ends = [found.end() for found in _CLOSING_ALONE.finditer(text)]
    return text[ends[-1] :] if ends else text


def remove_closed_blocks(text: str) -> str:
    """Without complete blocks."""
    return _remove_blocks(text, unclosed=False)


def _remove_blocks(text: str, *, unclosed: bool = True) -> str:
    kept, at, endless = [], 0, set[str]()
    for opening in OPENING.finditer(text):
        if opening.start() < at:
            continue
        closing = closing_tag(opening)
        end = None if closing.pattern in endless else closing.search(text, opening.end())
        if end is not None:
            kept.append(text[at : opening.start()])
            at = end.end()
            continue
        endless.add(closing.pattern)
        if unclosed and _stands_apart(text, opening):
            kept.append(text[at : opening.start()])
            return "".join(kept)
    return "".join(kept) + text[at:]


def _stands_apart(text: str, opening: re.Match[str]) -> bool:
    """An unclosed tag counts at the beginning of its line or at the end: elsewhere it is a word."""
    before = text[text.rfind("\n", 0, opening.start()) + 1 : opening.start()]
    behind = text[opening.end() : (text.find("\n", opening.end()) + 1 or len(text) + 1) - 1]
    return not before.strip() or not behind.strip()


class ReasoningFilter:
    """Streams the text without its blocks."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._closing: re.Pattern[str] | None = None
        self._rest = ""

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        while text:
            if self._closing is not None:
                end = self._closing.search(text)
                if end is None:
                    self._rest = text[-LONGEST_TAG:]
                    return
                text, self._closing = text[end.end() :], None
                continue
            opening = OPENING.search(text)
            at = opening.start() if opening else partial_tag_position(text)
            if text[:at]:
                self._tell(text[:at])
            if opening is None:
                self._rest = text[at:]
                return
            text, self._closing = text[opening.end() :], closing_tag(opening)

    def close(self) -> None:
        if self._rest and self._closing is None:
            self._tell(self._rest)
