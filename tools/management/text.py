"""Plain-text output of commands: aligned columns, no colors, no frames."""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

GAP = "  "
NOTHING = "-"
# Control characters of terminals, and characters that reverse the direction of text.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class TextStream(Protocol):
    def write(self, text: str) -> object: ...
    def isatty(self) -> bool: ...


def show(stream: TextStream, text: str) -> None:
    """Replaces control characters in texts of tools and servers for a terminal, not for a file."""
    stream.write(_COMMANDS.sub("\ufffd", text) if stream.isatty() else text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last one has no limit."""
    lines = [tuple(header), *(tuple(cell or NOTHING for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """One `Name:  value` per line, with aligned values."""
    named = [(f"{name}:", value or NOTHING) for name, value in pairs]
    width = max(len(name) for name, _ in named)
    return "\n".join(f"{name.ljust(width)}{GAP}{value}" for name, value in named)


def names(given: Iterable[str]) -> str:
    return ", ".join(given)
