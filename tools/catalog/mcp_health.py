"""What calls find out about a server: whether it lives, and whether its tools are still those that
were approved."""

import logging
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.catalog.drift import note_upstream
from tools.catalog.mcp_definitions import renewed
from tools.catalog.registry import Snapshot
from tools.definitions.tool import ToolDefinition
from tools.errors import ToolcribError
from tools.models import McpServer, Organization, Tool, ToolStatus

log = logging.getLogger(__name__)
_SYSTEM = "mcp-client"


def note_dead(server: UUID, error: str) -> None:
    """The first of many failures says since when."""
    now = timezone.now()
    McpServer.objects.filter(pk=server).update(last_error=error[:500])
    McpServer.objects.filter(pk=server, dead_since=None).update(dead_since=now)


def note_alive(server: UUID) -> None:
    rows = McpServer.objects.filter(pk=server)
    rows.update(dead_since=None, last_error="", last_seen_at=timezone.now())


@transaction.atomic
def quarantine(snapshot: Snapshot, definition: ToolDefinition, seen: Any) -> None:
    """Nobody calls the tool again before a person has looked at what changed. Safe to repeat."""
    revision = Organization.objects.next_revision(snapshot.organization_id)
    tool = (
        Tool.objects.present()
        .select_related("version", "organization")
        .filter(organization_id=snapshot.organization_id, name=definition.name)
        .first()
    )
    if tool is None or tool.status != ToolStatus.ACTIVE or tool.version is None:
        return
    if tool.version.digest != definition.digest:
        return  # another version was approved meanwhile
    gone = "is gone" if seen is None else "was changed"
    tool.status, tool.revision = ToolStatus.QUARANTINED, revision
    tool.status_reason = f"Upstream the tool {gone}; look at the difference and import it again."
    tool.save(update_fields=["status", "status_reason", "revision", "updated_at"])
    log.warning("the tool %s %s upstream and is quarantined", tool.name, gone)
    record(
        Event.TOOL_QUARANTINE,
        by=Actor("system", _SYSTEM, snapshot.organization),
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=tool.version.digest,
        details={
            "before": {"status": ToolStatus.ACTIVE},
            "after": {"status": ToolStatus.QUARANTINED},
            "reason": tool.status_reason,
        },
    )
    if seen is not None:
        _note(tool, seen)


def _note(tool: Tool, seen: dict[str, Any]) -> None:
    """For a person to read field by field. What is no definition of ours is only quarantined."""
    assert tool.version is not None
    server = tool.version.definition["implementation"]["server"]
    by = Actor("system", _SYSTEM, tool.organization.slug)
    with suppress(ToolcribError), transaction.atomic():
        note_upstream(tool=tool, seen=renewed(server, tool, seen, {}), by=by)
