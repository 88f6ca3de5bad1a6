"""What an approver compares a held call with: what its session last read, and the last approved
call of its shape, the same tool and caller. A fixed number of statements for any number of calls.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Subquery

from audit.actions import redactor_of
from tools.definitions.callers import Caller
from tools.definitions.differences import (
    DefinitionDifference,
    DifferenceKind,
    character_warnings,
    make_value_visible,
)
from tools.definitions.results import Status
from tools.definitions.tool import ToolDefinition
from tools.execution.outputs import readable_executions, redact_observation
from tools.models import Confirmation, ConfirmationStatus, Execution
from tools.ui.approvals.upstream_changes import SideBySideDiff, side_by_side_diff
from tools.ui.display import VisiblePiece, visible_pieces

MOST_READ = 1_500  # characters that are shown of what was read
MOST_LOOKED_AT = 50  # calls of a shape among which the last approved one is looked for
MOST_MEMBERS = 20
LONGEST_VALUE = 600  # characters of a member
_FOUND = ("pk", "read", "earlier")
_SHAPE = ("organization", "user", "tool_name")
_BEFORE_DIFFERENCE = 80  # characters of a longer one that are shown before what differs


@dataclass(frozen=True)
class LastRead:
    """A call whose result the session got last; `text` is empty for one to be read on its page."""

    execution: Execution
    text: list[VisiblePiece]
    cut: bool


@dataclass(frozen=True)
class EarlierCall:
    """The last approved call of the shape, and the arguments that differ from it."""

    confirmation: Confirmation
    differences: SideBySideDiff
    more: int


def compare_calls(
    caller: Caller, held: Sequence[Confirmation]
) -> dict[UUID, tuple[LastRead | None, EarlierCall | None]]:
    """By held call. What was read is of what the caller may read."""
    rows = Confirmation.objects.filter(pk__in=[one.pk for one in held])
    found = rows.annotate(read=_last_read_of(caller), earlier=_last_approved())
    known = {pk: (read, earlier) for pk, read, earlier in found.values_list(*_FOUND)}
    reads = Execution.objects.filter(pk__in=[read for read, _ in known.values()])
    read_by_id = reads.select_related("tool_version", "organization").defer("output").in_bulk()
    approved = Confirmation.objects.filter(pk__in=[earlier for _, earlier in known.values()])
    approved_by_id = approved.select_related("execution__tool_version").in_bulk()
    return {
        one.pk: (
            _last_read(read_by_id.get(known[one.pk][0])),
            _earlier_call(approved_by_id.get(known[one.pk][1]), one.execution),
        )
        for one in held
    }


def _last_read_of(caller: Caller) -> Subquery:
    done = readable_executions(caller).filter(status=Status.SUCCESS)
    of_session = done.filter(session=OuterRef("execution__session"), pk__lt=OuterRef("execution"))
    return Subquery(of_session.order_by("-pk").values("pk")[:1])


def _last_approved() -> Subquery:
    shape = {name: OuterRef(OuterRef(f"execution__{name}")) for name in _SHAPE}
    calls = Execution.objects.filter(pk__lt=OuterRef(OuterRef("execution")), **shape)
    latest = calls.order_by("-created_at").values("pk")[:MOST_LOOKED_AT]
    approved = Confirmation.objects.filter(status=ConfirmationStatus.APPROVED, execution__in=latest)
    return Subquery(approved.order_by("-pk").values("pk")[:1])


def _last_read(execution: Execution | None) -> LastRead | None:
    if execution is None:
        return None
    text = redact_observation(execution)
    return LastRead(execution, visible_pieces(text[:MOST_READ]), len(text) > MOST_READ)


def _earlier_call(earlier: Confirmation | None, held: Execution) -> EarlierCall | None:
    """Secrets of the earlier one are redacted; the held one is shown as it would run anyway."""
    if earlier is None:
        return None
    before, after = earlier.execution.parameters, held.parameters
    definition = ToolDefinition(earlier.execution.tool_version.definition)
    redactor = redactor_of(held.organization.slug).with_room(MOST_READ * 10, 1_000)
    names = [name for name in {**after, **before} if _differs(name, before, after)]
    redacted = redactor.clean({name: before[name] for name in names if name in before},
                              definition.sensitive)  # fmt: skip
    found = [_difference(name, redacted, after) for name in names[:MOST_MEMBERS]]
    return EarlierCall(earlier, side_by_side_diff(found), len(names) - len(found))


def _differs(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """As JSON, in which true is not 1."""
    both = name in before and name in after
    return not both or json.dumps(before[name]) != json.dumps(after[name])


def _difference(name: str, before: dict[str, Any], after: dict[str, Any]) -> DefinitionDifference:
    if name not in before:
        kind, texts = DifferenceKind.ADDED, ("", _text(after[name]))
    elif name not in after:
        kind, texts = DifferenceKind.REMOVED, (_text(before[name]), "")
    else:
        kind, texts = DifferenceKind.CHANGED, (_text(before[name]), _text(after[name]))
    old, new = _around_difference(*texts)
    warnings = tuple(character_warnings(f"{name} {new}"))
    return DefinitionDifference(
        make_value_visible(name), kind, make_value_visible(old), make_value_visible(new), warnings
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _around_difference(before: str, after: str) -> Iterable[str]:
    """Longer texts from shortly before where they differ."""
    shorter = min(len(before), len(after))
    first = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    start = (
        max(0, first - _BEFORE_DIFFERENCE) if max(len(before), len(after)) > LONGEST_VALUE else 0
    )
    for text in (before, after):
        end = start + LONGEST_VALUE
        yield f"{'… ' if start else ''}{text[start:end]}{' …' if len(text) > end else ''}"
