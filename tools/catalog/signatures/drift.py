"""Detects drift: an upstream's tool that differs from the approved one.

A tool whose upstream changed its name, description, schema or annotations is not the approved one
any more. Until a person has reviewed the difference, its calls are refused or use the approved
version, as the tool defines.
"""

from typing import Any

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.actions import changing, read, update_tool
from tools.definitions.differences import DefinitionDifference, compare_definitions
from tools.definitions.tool import definition_digest, ordered_if_valid
from tools.errors import Conflict, NotFound
from tools.models import Decision, OnDrift, Tool, ToolStatus, ToolVersion, UpstreamChange

CHANGED = "Its upstream changed. A person must read the difference first."
REJECTED = "Its upstream says what a person has rejected."


@transaction.atomic
def note_upstream(*, tool: Tool, seen: Any, by: Actor) -> UpstreamChange | None:
    """Record the upstream's current definition of the tool. None where it equals the approved one.

    Safe to repeat: one change is recorded once. Raises `InvalidDefinition`.
    """
    canonical = read(seen, builtin=False)
    tool = changing(tool)
    assert tool.version is not None
    said = definition_digest(canonical)
    if said == tool.version.digest:
        _withdraw(tool, by)
        return None
    change, new = UpstreamChange.objects.get_or_create(
        tool=tool, digest=said, defaults={"seen": canonical}
    )
    if change.decision == Decision.WITHDRAWN:
        _decide(change, Decision.OPEN, by)
        new = True
    _supersede(tool, change, by)
    rejected = change.decision == Decision.REJECTED
    _close(tool, REJECTED if rejected else CHANGED)
    if new:
        _record(Event.TOOL_DRIFT, tool, by, change, before=tool.version.definition, after=canonical)
    return change


def compared_to(change: UpstreamChange) -> ToolVersion:
    """The version that is approved now; of a change that was approved, the one it replaced."""
    versions, version = change.tool.versions, change.tool.version
    if change.decision == Decision.APPROVED:
        made = versions.filter(digest=change.digest, created_at__gte=change.seen_at)
        number = made.order_by("number").values_list("number", flat=True).first()
        before = number and versions.filter(number__lt=number).order_by("-number").first()
        version = before or version
    assert version is not None
    return version


def difference_of(change: UpstreamChange) -> list[DefinitionDifference]:
    """Field by field, against the version that it is to replace."""
    return compare_definitions(
        ordered_if_valid(compared_to(change).definition), ordered_if_valid(change.seen)
    )


def decide_change(
    *,
    change: UpstreamChange,
    approve: bool,
    read_digest: str,
    by: Actor,
    words: str = "",
    read_against: str = "",
) -> Tool:
    """A person's decision on the change that they read: `words` is the note of an approval, or the
    reason of a rejection.

    `read_against` is the digest of the version that it was compared with, where that is known.
    """
    if approve:
        return approve_change(
            change=change, read_digest=read_digest, by=by, note=words, read_against=read_against
        )
    return reject_change(change=change, read_digest=read_digest, by=by, reason=words)


@transaction.atomic
def approve_change(
    *,
    change: UpstreamChange,
    read_digest: str,
    by: Actor,
    note: str = "",
    read_against: str = "",
) -> Tool:
    """The upstream's definition becomes the tool's next version, and the tool is in use again.

    `read_digest` names what was read: another is refused, since it was not reviewed. So is another
    version in use than `read_against`, since the change to that one was not reviewed.
    """
    tool, change = _deciding(change, read_digest)
    assert tool.version is not None
    if read_against and tool.version.digest != read_against:
        raise Conflict(
            "The tool was changed since: read what the change would do to it now.",
            code="change_not_read",
        )
    tool = update_tool(tool=tool, definition=change.seen, by=by, note=note)
    _decide(change, Decision.APPROVED, by, note)
    _open(tool)
    _record(Event.DRIFT_APPROVE, tool, by, change, after={"digest": change.digest})
    return tool


@transaction.atomic
def settle(*, tool: Tool, by: Actor) -> None:
    """Closes open changes after the upstream's definition was taken over in another way."""
    assert tool.version is not None
    for change in tool.upstream_changes.filter(decision=Decision.OPEN):
        same = change.digest == tool.version.digest
        _decide(change, Decision.APPROVED if same else Decision.WITHDRAWN, by)


@transaction.atomic
def reject_change(*, change: UpstreamChange, read_digest: str, by: Actor, reason: str) -> Tool:
    """The approved version stays. The same change needs no further decision."""
    tool, change = _deciding(change, read_digest)
    _decide(change, Decision.REJECTED, by, reason)
    _close(tool, REJECTED)
    _record(Event.DRIFT_REJECT, tool, by, change, after={"digest": change.digest}, reason=reason)
    return tool


@transaction.atomic
def set_on_drift(*, tool: Tool, policy: OnDrift, by: Actor) -> Tool:
    """Set the policy for later changes of the upstream; pending ones are settled as well. Safe to
    repeat."""
    tool = changing(tool)
    before = tool.on_drift
    if before == policy:
        return tool
    tool.on_drift = policy
    tool.save(update_fields=["on_drift", "updated_at"])
    waiting = tool.upstream_changes.filter(decision=Decision.OPEN).exists()
    if policy == OnDrift.SERVE:
        _open(tool)
    elif waiting:
        _close(tool, CHANGED)
    record(
        Event.TOOL_UPDATE, by=by, outcome=Outcome.CHANGED, subject=tool.name,
        details=dict(difference({"on_drift": before}, {"on_drift": policy})),
    )  # fmt: skip
    return tool


def find_change(organization_id: Any, identifier: Any) -> UpstreamChange:
    """Raises `NotFound`, also for another organization's."""
    found = (
        UpstreamChange.objects.select_related("tool__version", "tool__organization")
        .filter(tool__organization_id=organization_id, pk=identifier)
        .first()
    )
    if found is None:
        raise NotFound("There is no such change.", code="change_not_found")
    return found


def _deciding(change: UpstreamChange, read_digest: str) -> tuple[Tool, UpstreamChange]:
    """Both as they are now, behind the organization's lock."""
    tool = changing(change.tool)
    change = UpstreamChange.objects.get(pk=change.pk)
    if change.digest != read_digest:
        raise Conflict(
            "The digest is not that of this change: read the difference again.",
            code="change_not_read",
        )
    if definition_digest(change.seen) != change.digest:
        raise Conflict("What is stored of this change was altered.", code="change_altered")
    if change.decision != Decision.OPEN:
        raise Conflict(f"The change was {change.decision} already.", code="change_decided")
    return tool, change


def _withdraw(tool: Tool, by: Actor) -> None:
    waiting = list(tool.upstream_changes.filter(decision__in=[Decision.OPEN, Decision.REJECTED]))
    opened = [one for one in waiting if one.decision == Decision.OPEN]
    for change in opened:
        _decide(change, Decision.WITHDRAWN, by)
        _record(Event.DRIFT_WITHDRAWN, tool, by, change, before={"digest": change.digest})
    if waiting:
        _open(tool)


def _supersede(tool: Tool, latest: UpstreamChange, by: Actor) -> None:
    """Of several changes only the latest can be approved: the upstream no longer offers the
    others."""
    for change in tool.upstream_changes.filter(decision=Decision.OPEN).exclude(pk=latest.pk):
        _decide(change, Decision.WITHDRAWN, by)


def _decide(change: UpstreamChange, decision: Decision, by: Actor, reason: str = "") -> None:
    change.decision, change.reason = decision, reason[:500]
    over = decision != Decision.OPEN
    change.decided_at = timezone.now() if over else None
    change.decided_by = f"{by.kind}:{by.name}"[:200] if over else ""
    change.save(update_fields=["decision", "reason", "decided_at", "decided_by"])


def _close(tool: Tool, why: str) -> None:
    if tool.on_drift == OnDrift.SERVE or tool.status not in {
        ToolStatus.ACTIVE,
        ToolStatus.QUARANTINED,
    }:
        return
    tool.status, tool.status_reason = ToolStatus.QUARANTINED, why
    tool.save(update_fields=["status", "status_reason", "updated_at"])


def _open(tool: Tool) -> None:
    if tool.status == ToolStatus.QUARANTINED:
        tool.status, tool.status_reason = ToolStatus.ACTIVE, ""
        tool.save(update_fields=["status", "status_reason", "updated_at"])


def _record(
    event: Event,
    tool: Tool,
    by: Actor,
    change: UpstreamChange,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    record(
        event,
        by=by,
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=change.digest,
        details={"change": str(change.pk), **difference(before, after), **more},
    )
