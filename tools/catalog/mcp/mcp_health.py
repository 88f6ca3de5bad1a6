"""Records what calls find out about an MCP server: whether it is reachable, and whether its tools
are still those that were approved."""

import logging
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.catalog.mcp.mcp_definitions import renew_definition
from tools.catalog.signatures.drift import note_upstream
from tools.catalog.snapshot import CatalogTool
from tools.definitions.mcp.listed_tools import approval_digest
from tools.errors import ToolcribError
from tools.models import McpServer, OnDrift, Organization, Tool, ToolStatus

log = logging.getLogger(__name__)
_SYSTEM = "mcp-client"
_MOST_NOTED = 10_000
_noted: set[tuple[UUID, str, str]] = set()


def note_dead(server: UUID, error: str) -> None:
    """Records a failure; the first of a series sets `dead_since`."""
    now = timezone.now()
    McpServer.objects.filter(pk=server).update(last_error=error[:500])
    McpServer.objects.filter(pk=server, dead_since=None).update(dead_since=now)


def note_alive(server: UUID) -> None:
    rows = McpServer.objects.filter(pk=server)
    rows.update(dead_since=None, last_error="", last_seen_at=timezone.now())


def note_changed(tool: CatalogTool, organization: UUID, seen: Any) -> None:
    """Records the server's current description of a tool, for a person to review. Safe to repeat.

    Unless the tool's policy is to serve the approved version, the tool is quarantined until then.
    """
    if tool.on_drift == OnDrift.SERVE:
        _note_once(tool, organization, seen)
    else:
        _quarantine(tool, organization, seen)


@transaction.atomic
def _quarantine(known: CatalogTool, organization: UUID, seen: Any) -> None:
    revision = Organization.objects.next_revision(organization)
    tool = _row(known, organization)
    if tool is None or tool.status != ToolStatus.ACTIVE:
        return
    gone = "is gone" if seen is None else "was changed"
    tool.status, tool.revision = ToolStatus.QUARANTINED, revision
    tool.status_reason = f"Upstream the tool {gone}; look at the difference and import it again."
    tool.save(update_fields=["status", "status_reason", "revision", "updated_at"])
    log.warning("the tool %s %s upstream and is quarantined", tool.name, gone)
    record(
        Event.TOOL_QUARANTINE,
        by=Actor("system", _SYSTEM, tool.organization.slug),
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=known.digest,
        details={
            "before": {"status": ToolStatus.ACTIVE},
            "after": {"status": ToolStatus.QUARANTINED},
            "reason": tool.status_reason,
        },
    )
    if seen is not None:
        _note(tool, seen)


def _note_once(known: CatalogTool, organization: UUID, seen: Any) -> None:
    """Every call finds the same change: the first of this process records it."""
    if seen is None:
        return
    key = (known.id, known.digest, approval_digest(seen))
    if key in _noted:
        return
    tool = _row(known, organization)
    if tool is not None:
        _note(tool, seen)
    if len(_noted) >= _MOST_NOTED:
        _noted.clear()
    _noted.add(key)


def _row(known: CatalogTool, organization: UUID) -> Tool | None:
    """None where another version was approved meanwhile."""
    rows = Tool.objects.present().select_related("version", "organization")
    found = rows.filter(organization_id=organization, pk=known.id).first()
    if found is None or found.version is None or found.version.digest != known.digest:
        return None
    return found


def _note(tool: Tool, seen: dict[str, Any]) -> None:
    """For a person to read field by field. An invalid definition is only quarantined."""
    assert tool.version is not None
    server = tool.version.definition["implementation"]["server"]
    by = Actor("system", _SYSTEM, tool.organization.slug)
    with suppress(ToolcribError), transaction.atomic():
        note_upstream(tool=tool, seen=renew_definition(server, tool, seen, {}), by=by)
