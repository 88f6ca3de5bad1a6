"""`/executions/<id>/output/`: the output of a call, in pieces, or as a collapsible JSON tree.

Only the bytes that a page shows are read. Pages redact the secrets that evidence redacts; the API
returns the unchanged output to callers that may read the call.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from audit.actions import redactor_of
from tools.definitions.tool import ToolDefinition
from tools.errors import Conflict, Gone, NotFound
from tools.execution import answer, outputs
from tools.execution.outputs import OutputContent, redact_execution
from tools.models import Execution
from tools.ui.display import pretty, truncate
from tools.web.pages import PageRequest, page

TEMPLATE = "executions/output.html"
PIECE_BYTES = 32 * 1024
MOST_TREE_BYTES = 512 * 1024  # bytes of JSON that are read as a whole, for the tree
MOST_NODES = 1_500
MOST_DEPTH = 24
OPEN_DEPTH = 2  # levels of the tree that are open initially
_MARGIN = 4  # most bytes of a character
_MEMBER = re.compile(r'"((?:[^"\\]|\\.){1,200})"\s*:\s*("(?:[^"\\]|\\.)*"?|[^\s,\[\]{}]+)')


@dataclass(frozen=True)
class OutputNode:
    """A value of the output. `items` is None for a scalar; `more` items were left out."""

    name: str
    said: str
    kind: str
    items: list["OutputNode"] | None = None
    more: int = 0
    open: bool = False


@dataclass(frozen=True)
class OutputPiece:
    """The characters between two offsets, and the addresses of the previous and next piece."""

    text: str
    start: int
    end: int
    size: int
    previous: str
    next: str
    last: str


@page()
def output_page(request: PageRequest, execution_id: UUID) -> HttpResponse:
    execution = answer.find_execution(request.caller, execution_id)
    context: dict[str, Any] = {"execution": execution, "content": None}
    try:
        content = outputs.load_content(execution)
    except (Conflict, NotFound, Gone) as absent:
        return render(request, TEMPLATE, context | {"absent": absent.message})
    folds = content.type == outputs.JSON and content.size <= MOST_TREE_BYTES
    shown = request.GET.get("as", "folded" if folds else "text")
    context |= {"content": content, "folds": folds}
    if folds and shown == "folded":
        return render(request, TEMPLATE, context | {"tree": _output_tree(execution, content)})
    if folds:  # small enough to be redacted as a whole
        content = _redacted_content(execution, content)
    at = _parse_offset(request.GET, content.size)
    return render(request, TEMPLATE, context | {"piece": _load_piece(execution, content, at)})


def _parse_offset(query: QueryDict, size: int) -> int:
    """The requested offset, or the start of the last piece."""
    text = query.get("at", "")
    wanted = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0
    return min(wanted, max(0, size - 1)) // PIECE_BYTES * PIECE_BYTES


def _load_piece(execution: Execution, content: OutputContent, at: int) -> OutputPiece:
    """A character at the edge belongs to the piece in which it begins."""
    start, end = at, min(content.size, at + PIECE_BYTES)
    raw = _piece_text(execution, content, start, end)
    return OutputPiece(
        text=raw,
        start=start,
        end=end,
        size=content.size,
        previous=_piece_url(execution, start - PIECE_BYTES) if start else "",
        next=_piece_url(execution, end) if end < content.size else "",
        last=_piece_url(execution, content.size - 1) if end < content.size else "",
    )


def _piece_text(execution: Execution, content: OutputContent, start: int, end: int) -> str:
    raw = content.piece(start, min(content.size, end + _MARGIN) - start)
    text = _whole_characters(raw, end - start)
    return _redact(execution, text)


def _whole_characters(raw: bytes, length: int) -> str:
    """The characters that begin within the first `length` bytes."""
    begin = next((at for at, byte in enumerate(raw[:_MARGIN]) if byte & 0xC0 != 0x80), 0)
    end = length
    while end < len(raw) and raw[end] & 0xC0 == 0x80:
        end += 1
    return raw[begin:end].decode("utf-8", "replace")


def _redact(execution: Execution, text: str) -> str:
    """Redact secrets by pattern, and values by the names of JSON members within the piece."""
    redactor = redactor_of(execution.organization.slug).with_room(PIECE_BYTES * 2, 1)
    sensitive = ToolDefinition(execution.tool_version.definition).sensitive

    def masked(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        said = redactor.clean({name: value}, sensitive).get(name)
        return found[0] if said == value else f'"{name}": "{said}"'

    said: str = redactor.clean(_MEMBER.sub(masked, text))
    return said


def _redacted_output(execution: Execution, content: OutputContent) -> Any:
    """The redacted output, if it is small enough to be read as a whole."""
    if content.inline is None:
        execution.output = json.loads(content.piece(0, content.size))
    return redact_execution(execution)["output"]


def _redacted_content(execution: Execution, content: OutputContent) -> OutputContent:
    text = pretty(_redacted_output(execution, content)).encode()
    return replace(content, inline=text, size=len(text))


def _output_tree(execution: Execution, content: OutputContent) -> OutputNode:
    return _output_node("", _redacted_output(execution, content), iter(range(MOST_NODES)), 0)


def _output_node(name: str, value: Any, budget: Iterator[int], depth: int) -> OutputNode:
    if not isinstance(value, dict | list):
        said = value if isinstance(value, str) else json.dumps(value)
        return OutputNode(name, truncate(said), "text" if isinstance(value, str) else "plain")
    kind, count = ("object", len(value)) if isinstance(value, dict) else ("list", len(value))
    if depth >= MOST_DEPTH:
        return OutputNode(name, truncate(pretty(value)), "plain")
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    items = []
    for key, item in pairs:
        if next(budget, None) is None:
            break
        items.append(_output_node(str(key), item, budget, depth + 1))
    word = "member" if kind == "object" else "item"
    said = f"{count:,} {word}{'' if count == 1 else 's'}"
    return OutputNode(name, said, kind, items, count - len(items), open=depth < OPEN_DEPTH)


def _piece_url(execution: Execution, at: int) -> str:
    query = urlencode({"as": "text", "at": max(0, at)})
    return f"{reverse('execution-output', args=[execution.pk])}?{query}"
