"""`/changes/`: changes of upstream tools that await approval, and their approval or rejection.

The difference of two definitions is shown side by side: invisible characters by name, and
look-alikes of Latin letters with their code point.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.functional import SimpleLazyObject

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.catalog.signatures import drift
from tools.definitions.differences import (
    MOST_DIFFERENCES,
    DefinitionDifference,
    DifferenceKind,
    diff_words,
    make_value_visible,
)
from tools.definitions.texts.lookalikes import code_point, find_lookalikes
from tools.definitions.tool import ordered_definition
from tools.definitions.vocabulary import ToolType
from tools.errors import Malformed, ToolcribError
from tools.models import Decision, OnDrift, Tool, UpstreamChange
from tools.ui.display import pretty
from tools.web.keyset import count_at_most
from tools.web.listing import Column, Filters, Listing, text_field
from tools.web.pages import PageRequest, action_page, page
from tools.web.reauthentication import Proof

LIST, ONE = "approvals/upstream_changes.html", "approvals/upstream_change.html"
NOT_READ = (
    "Nothing was decided: what you read is not what there is now. Below stands what it is now; "
    "read it before you decide."
)
_NAMED_CHARACTER = re.compile(r"‹(U\+[0-9A-F]{4,6}[^‹›]*)›")
_MOST_WORD_PAIRS = (
    40_000  # pairs of words that one page compares, so that no upstream can slow it down
)
_STATES = {"open": "Waiting", "approved": "Approved", "rejected": "Rejected", "withdrawn": "Gone"}
_VERBS = {"approve": True, "reject": False}
_MOST_FIELDS = 6
MarkedTexts = list[tuple[str, bool]]


@dataclass(frozen=True)
class ToolOrigin:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """A part of a text. `name` is the name of an invisible or look-alike character."""

    text: str
    changed: bool = False
    name: str = ""


@dataclass(frozen=True)
class FieldDiffRow:
    """One field. A side is None where it lacks the field."""

    path: list[DiffPiece]
    kind: DifferenceKind
    before: list[DiffPiece] | None
    after: list[DiffPiece] | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SideBySideDiff:
    rows: list[FieldDiffRow]
    cut: bool

    @property
    def warned(self) -> bool:
        return any(row.warnings for row in self.rows)


@dataclass(frozen=True)
class UpstreamChangeItem:
    """One row of the list."""

    change: UpstreamChange
    source: ToolOrigin | None
    fields: list[str]
    more: int
    warned: bool


def tool_origin(tool: Tool) -> ToolOrigin | None:
    """None for a tool that its organization wrote: it has no upstream."""
    implementation = tool.version.definition.get("implementation") or {} if tool.version else {}
    if tool.type == ToolType.MCP:
        return ToolOrigin("MCP server", str(implementation.get("server") or tool.name))
    if tool.type == ToolType.SERVICE:
        return ToolOrigin("tool service", str(implementation.get("service") or ""))
    return None


def side_by_side_diff(found: list[DefinitionDifference]) -> SideBySideDiff:
    effort, rows = _MOST_WORD_PAIRS, []
    for one in found:
        before, after = _value_text(one.before), _value_text(one.after)
        pairs = (before.count(" ") + 1) * (after.count(" ") + 1)
        words = _mark_words(before, after) if pairs <= effort else _mark_middle(before, after)
        effort -= pairs if pairs <= effort else 0
        old, new = (
            words if one.kind == DifferenceKind.CHANGED else ([(before, False)], [(after, False)])
        )
        rows.append(
            FieldDiffRow(
                path=_diff_pieces([(one.path.lstrip("/") or "the whole of it", False)]),
                kind=one.kind,
                before=None if one.kind == DifferenceKind.ADDED else _diff_pieces(old),
                after=None if one.kind == DifferenceKind.REMOVED else _diff_pieces(new),
                warnings=one.warnings,
            )
        )
    return SideBySideDiff(rows, cut=len(found) >= MOST_DIFFERENCES)


def changed_fields(found: Iterable[DefinitionDifference]) -> list[str]:
    """The distinct fields of a definition that differ."""
    return list(dict.fromkeys(one.path.split("/")[1] for one in found if "/" in one.path))


def count_changes(request: HttpRequest) -> dict[str, Any]:
    """A context processor: the number of pending changes, counted when a template shows it."""
    return {"changes_waiting": SimpleLazyObject(lambda: _count_pending(request))}


class ChangeFilters(Filters):
    tool = text_field("Tool")


class ChangeListing(Listing):
    """Changes of one state, the newest first."""

    view, template, noun, filters = "changes", LIST, "change", ChangeFilters
    order, above = "-seen", True

    def build(self) -> None:
        self.state = self.given.get("state", str(Decision.OPEN))
        if self.state not in _STATES:
            raise Malformed(f"state must be one of {', '.join(_STATES)}.")
        self.fixed = {"state": self.state} if "state" in self.given else {}
        self.columns = [
            Column("tool", "Tool", lambda row: row.change.tool.name, sort="tool__name"),
            Column("source", "Source", lambda row: row.source.name if row.source else ""),
            Column("changed", "Changed", lambda row: row.fields),
            Column("decided", "Meanwhile" if self.state == Decision.OPEN else "Decided",
                   lambda row: row.change.decided_by),
            Column("reason", "", lambda row: row.change.reason),
            Column("seen", "Seen", lambda row: row.change.seen_at, sort="seen_at", css="number"),
        ]  # fmt: skip

    def rows(self) -> QuerySet[UpstreamChange]:
        rows = _find_changes(self.request).filter(decision=self.state)
        if tool := self.values.get("tool"):
            rows = rows.filter(tool__name=tool)
        return rows.select_related("tool__version")

    def prepare(self, rows: list[UpstreamChange]) -> list[UpstreamChangeItem]:
        return _change_items(rows)

    def context(self) -> dict[str, Any]:
        return {
            "states": _count_states(self.request),
            "decides": may(self.caller, "change_tool"),
        }


@page("view_tool")
def change_list(request: PageRequest) -> HttpResponseBase:
    return ChangeListing(request).respond()


@page("view_tool")
def change_page(request: PageRequest, change_id: UUID) -> HttpResponse:
    change = drift.find_change(request.caller.organization_id, change_id)
    return render(request, ONE, _change_context(request, change))


@action_page(Proof.NEEDED, "change_tool")
def decide(request: PageRequest, change_id: UUID) -> HttpResponseBase:
    """Approve or reject a change. A refusal redirects to the current difference."""
    change = drift.find_change(request.caller.organization_id, change_id)
    try:
        _decide(request, change)
    except ToolcribError as refusal:
        latest = _latest_change(change)
        other = refusal.code == "change_not_read" or latest != change
        messages.error(
            request,
            NOT_READ if other else f"Nothing was decided: {_refusal_text(refusal)}",
            extra_tags=refusal.code,
        )
        return redirect("change", latest.pk)
    return redirect("change", change.pk)


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else pretty(value)


def _mark_words(before: str, after: str) -> tuple[MarkedTexts, MarkedTexts]:
    """Both sides, with the words that differ marked."""
    sides: dict[str, MarkedTexts] = {"removed": [], "added": []}
    for what, text in diff_words(before, after):
        for side in sides if what == "same" else [what]:
            between = " " if sides[side] else ""
            sides[side] += [(between, False), (text, what != "same")]
    return sides["removed"], sides["added"]


def _mark_middle(before: str, after: str) -> tuple[MarkedTexts, MarkedTexts]:
    """The same for longer texts: everything between their common ends is marked."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if before[-1 - at] != after[-1 - at]), rest)
    return _mark_between(before, start, end), _mark_between(after, start, end)


def _mark_between(text: str, start: int, end: int) -> MarkedTexts:
    stop = len(text) - end
    return [(text[:start], False), (text[start:stop], True), (text[stop:], False)]


def _diff_pieces(stretches: MarkedTexts) -> list[DiffPiece]:
    return [piece for text, changed in stretches if text for piece in _split_text(text, changed)]


def _split_text(text: str, changed: bool) -> Iterator[DiffPiece]:
    done = 0
    for start, end, shown, name in sorted(_find_marks(text)):
        if start > done:
            yield DiffPiece(text[done:start], changed)
        yield DiffPiece(shown, changed, name)
        done = end
    if done < len(text):
        yield DiffPiece(text[done:], changed)


def _find_marks(text: str) -> Iterator[tuple[int, int, str, str]]:
    for match in _NAMED_CHARACTER.finditer(text):
        yield match.start(), match.end(), match[1], "cannot be seen"
    for one in find_lookalikes(text):
        yield one.at, one.at + 1, f"{one.character} {code_point(one.character)}", one.description


def _decide(request: PageRequest, change: UpstreamChange) -> None:
    given = request.POST
    approve = _VERBS.get(given.get("word", ""))
    if approve is None:
        raise Malformed("the form names nothing to do. Try again.")
    words = given.get("reason", "").strip()[:500]
    if not approve and not words:
        raise Malformed("say why you reject it; whoever looks at it next will want to know.")
    tool = drift.decide_change(
        change=change,
        approve=approve,
        read_digest=given.get("digest", ""),
        read_against=given.get("against", ""),
        by=actor_of(request.caller),
        words=words,
    )
    assert tool.version is not None
    said = f"is version {tool.version.label} now" if approve else "stays as it was approved"
    messages.success(request, f"{tool.name} {said}.")


def _refusal_text(refusal: ToolcribError) -> str:
    flaws = refusal.details.get("errors") or []
    return "; ".join([refusal.message, *(f"{one['field']} {one['message']}" for one in flaws)])


def _change_context(request: PageRequest, change: UpstreamChange) -> dict[str, Any]:
    before, latest = drift.compared_to(change), _latest_change(change)
    tool = change.tool
    return {
        "change": change,
        "tool": tool,
        "source": tool_origin(tool),
        "before": before,
        "drawn": side_by_side_diff(drift.difference_of(change)),
        "whole": pretty(make_value_visible(ordered_definition(change.seen))),
        "newer": latest if latest != change else None,
        "decides": may(request.caller, "change_tool"),
        "serves": tool.on_drift == OnDrift.SERVE,
        "gone": tool.deleted_at is not None,
    }


def _latest_change(change: UpstreamChange) -> UpstreamChange:
    """The pending change of the same tool, where there is one."""
    waits = change.tool.upstream_changes.filter(decision=Decision.OPEN)
    return waits.order_by("-seen_at").first() or change


def _change_items(found: list[UpstreamChange]) -> list[UpstreamChangeItem]:
    items = []
    for change in found:
        differences = drift.difference_of(change)
        fields = changed_fields(differences)
        warned = any(one.warnings for one in differences)
        more = max(0, len(fields) - _MOST_FIELDS)
        items.append(
            UpstreamChangeItem(
                change, tool_origin(change.tool), fields[:_MOST_FIELDS], more, warned
            )
        )
    return items


def _find_changes(request: PageRequest) -> QuerySet[UpstreamChange]:
    return UpstreamChange.objects.filter(
        tool__organization_id=request.caller.organization_id, tool__deleted_at=None
    )


def _count_states(request: PageRequest) -> list[tuple[str, str, int | str]]:
    """Each state with its name and number."""
    found = _find_changes(request)
    return [
        (state, word, count_at_most(found.filter(decision=state)))
        for state, word in _STATES.items()
    ]


def _count_pending(request: HttpRequest) -> int | str:
    """Pending changes of the user's organization; 0 for users who may not see them."""
    user = getattr(request, "user", None)
    if user is None or not user.has_perm("tools.view_tool"):
        return 0
    return count_at_most(
        UpstreamChange.objects.filter(
            tool__organization_id=user.organization_id,
            tool__deleted_at=None,
            decision=Decision.OPEN,
        )
    )
