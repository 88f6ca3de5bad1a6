"""Replay of a call: loads its arguments from an execution or from an audit record.

Only arguments that the user may see are loaded: redacted or truncated ones stay empty and are
listed.
"""

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from audit.records import record_access
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.errors import NotFound
from tools.execution import answer
from tools.execution.outputs import readable_executions, redact_execution
from tools.models import Execution
from tools.ui.display import DiffLine, diff_texts, format_duration, output_text

_REDACTION = re.compile(
    r"\[redacted [0-9a-f]{12}\]|… \d+ more(?: characters)?(?: \[whole [0-9a-f]{12}\])?\Z"
)
_TRUNCATED = "…"


@dataclass
class ReplaySource:
    """`emptied` are the paths of redacted values; `again` is the original call, if it ended."""

    tool: str
    parameters: dict[str, Any]
    groups: list[str] | None
    state: str
    agent: str
    again: Execution | None
    emptied: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReplayComparison:
    """Two results of one call: `rows` are (name, before, after, whether they differ)."""

    before: Execution
    rows: list[tuple[str, str, str, bool]]
    lines: list[DiffLine] | None


def from_execution(person: Caller, identifier: UUID) -> ReplaySource:
    """Raises `NotFound`, also for a call that the user may not read."""
    execution = answer.find_execution(person, identifier)
    parameters, emptied = remove_redactions(redact_execution(execution)["parameters"])
    return ReplaySource(
        tool=execution.tool_name,
        parameters=parameters,
        groups=execution.requested_groups,
        state=execution.state,
        agent=execution.agent.slug if execution.agent else "",
        again=execution if execution.is_final else None,
        emptied=emptied,
    )


def from_record(person: Caller, identifier: UUID) -> ReplaySource:
    """Raises `NotFound`, and `Forbidden` for users who may not read the payload of records."""
    for permission in ("audit.view_auditrecord", record_access.MAY_OPEN):
        require(person, permission)
    opened = record_access.open_record(identifier, by=actor_of(person), may_open=True)
    asked = (opened.payload.content or {}).get("parameters") if opened else None
    if opened is None or not isinstance(asked, dict):
        raise NotFound("No record of yours keeps parameters under this identifier.")
    record, details = opened.record, opened.record.details
    groups = details.get("requested_groups")
    parameters, emptied = remove_redactions(asked)
    rows = readable_executions(person)
    made = rows.filter(pk=record.execution_id).first() if record.execution_id else None
    return ReplaySource(
        tool=record.subject,
        parameters=parameters,
        groups=[str(name) for name in groups] if isinstance(groups, list) else None,
        state=str(details.get("state") or ""),
        agent=record.actor if record.actor_kind == "agent" else "",
        again=made if made and made.is_final else None,
        emptied=emptied,
    )


def remove_redactions(parameters: Any) -> tuple[dict[str, Any], list[str]]:
    """The parameters without redacted or truncated values, and the paths of those."""
    places: list[str] = []
    if not isinstance(parameters, dict):
        return {}, places
    kept = {}
    for name, value in parameters.items():
        if name == _TRUNCATED or _is_redacted(name) or _is_redacted(value):
            places.append(_member_label(name))
        else:
            kept[name] = _empty_redacted(value, _member_label(name), places)
    return kept, places


def compare_finished(before: Execution | None, after: Execution | None) -> ReplayComparison | None:
    """Compares redacted results, once the new call is over too. Outputs are compared only if both
    calls succeeded."""
    if before is None or after is None or not after.is_final:
        return None
    said, says = redact_execution(before), redact_execution(after)
    values = [
        ("Status", str(before.stage), str(after.stage)),
        ("Error", before.error_code or "–", after.error_code or "–"),
        ("What it says", said["error_message"] or "–", says["error_message"] or "–"),
        ("Version", before.tool_version.label, after.tool_version.label),
        ("Duration", format_duration(before.duration_ms), format_duration(after.duration_ms)),
    ]
    rows = [(name, old, new, old != new and name != "Duration") for name, old, new in values]
    old, new = (output_text(Status.SUCCESS, one["output"]) if one["output"] is not None else ""
                for one in (said, says))  # fmt: skip
    return ReplayComparison(before, rows, diff_texts(old.splitlines(), new.splitlines()))


def find_replayed_execution(person: Caller, identifier: str, tool: str) -> Execution | None:
    """The call that a form replays; None unless it is a call of that tool that the user may
    read."""
    try:
        rows = readable_executions(person).filter(pk=UUID(identifier), tool_name=tool)
    except ValueError:
        return None
    found = rows.select_related("tool_version", "organization").first()
    return found if found is not None and found.is_final else None


def _empty_redacted(value: Any, place: str, places: list[str]) -> Any:
    if isinstance(value, dict):
        kept = {}
        for name, item in value.items():
            if name == _TRUNCATED or _is_redacted(name):
                places.append(f"{place}/{_member_label(name)}")
            else:
                kept[name] = _empty_redacted(item, f"{place}/{_member_label(name)}", places)
        return kept
    if isinstance(value, list):
        return [_empty_redacted(item, f"{place}/{at}", places) for at, item in enumerate(value)]
    if _is_redacted(value):
        places.append(place)
        return ""
    return value


def _is_redacted(value: Any) -> bool:
    return isinstance(value, str) and _REDACTION.search(value) is not None


def _member_label(name: str) -> str:
    return name if name != _TRUNCATED else "what was cut"
