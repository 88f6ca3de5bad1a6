"""Formats values for pages: JSON, outputs and differences of texts."""

import difflib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tools.definitions.results import Status
from tools.definitions.texts.lookalikes import make_visible
from tools.models import Execution

MOST_CHARACTERS = 20_000
MOST_LINES = 4_000
_KINDS = {"+": "added", "-": "removed", "@": "place"}


@dataclass(frozen=True)
class DiffLine:
    kind: str
    text: str


@dataclass(frozen=True)
class SourceStatus:
    """The status of a source of tools: a word, the color of its chip, and since or until when."""

    word: str
    tone: str
    since: datetime | None = None
    until: datetime | None = None
    about: str = ""


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def on_one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def cut(text: str) -> str:
    """A text cut to what a page can show; the API has the whole text."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n… {len(text) - MOST_CHARACTERS:,} more characters"


def milliseconds(length_ms: float | None) -> str:
    if length_ms is None:
        return "–"
    if length_ms >= 60_000:
        return f"{int(length_ms // 60_000)} min {length_ms % 60_000 / 1000:.0f} s"
    if length_ms >= 1_000:
        return f"{length_ms / 1000:.2f} s"
    return f"{length_ms:.1f} ms" if length_ms < 100 else f"{length_ms:.0f} ms"


def output_of(status: str, output: Any) -> str:
    """A text as it is, anything else as JSON; empty for a call that did not succeed."""
    if status != Status.SUCCESS:
        return ""
    return cut(output if isinstance(output, str) else pretty(output))


def maker_of(execution: Execution) -> str:
    """The user who made a call by impersonation; empty for other calls."""
    another = execution.made_by if execution.made_by_id != execution.user_id else None
    return another.username if another else ""


def difference(old: dict[str, Any] | None, new: dict[str, Any]) -> list[DiffLine] | None:
    """The diff of two definitions; None where they are too long to compare."""
    return text_difference(_lines(old) if old else [], _lines(new))


def text_difference(before: list[str], after: list[str]) -> list[DiffLine] | None:
    """The diff of any two texts."""
    if len(before) + len(after) > MOST_LINES:
        return None
    changes = difflib.unified_diff(before, after, n=3, lineterm="")
    return [
        DiffLine(_KINDS.get(text[:1], "same"), make_visible(text)) for text in list(changes)[2:]
    ]


def _lines(definition: dict[str, Any]) -> list[str]:
    """JSON with the source below it: within JSON, changes of the source would be unreadable."""
    implementation = dict(definition.get("implementation") or {})
    source = implementation.pop("source", None)
    lines = pretty(definition | {"implementation": implementation}).splitlines()
    return [*lines, "", "# source", *source.splitlines()] if isinstance(source, str) else lines
