"""Pins: tool versions that one agent, or one session, keeps to. A session's pins override its
agent's.

This module returns a caller's catalog: everywhere else a pinned version is simply the tool.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db import transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.accounts.user_permissions import may
from tools.authorization.listings import visible_tool
from tools.catalog.actions import find_tool
from tools.catalog.registry import catalog_tool, registry
from tools.catalog.signatures.version_signatures import check_version
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.tool import Definition, ToolDefinition
from tools.errors import Forbidden, Malformed, NotFound
from tools.models import Agent, Organization, Pin, Session, Tool, ToolVersion

MOST_PINS = 200
Pins = Mapping[str, str | None]
# Fields whose difference may make a version more permissive.
_PERMISSIVE_FIELDS = (
    "group", "state", "available_in_states", "constraints", "delivery", "argument_validation",
    "cache_ttl",
)  # fmt: skip


def snapshot_for(caller: Caller, session: UUID | str | None = None) -> Snapshot:
    """The catalog with the caller's pinned versions, and those of its session."""
    base = registry.snapshot(caller.organization_id, caller.revision)
    pins = dict(base.pins.get(caller.agent_id, {})) if caller.agent_id else {}
    if session is not None:
        pins |= _session_pins(caller, session, base)
    if not pins:
        return base
    key = frozenset(one.version_id for one in pins.values())
    return base.remember(("pins", key), lambda: _with_pins(base, pins))


def pins_of(agent: Agent) -> dict[str, str]:
    return _labels_by_tool(Pin.objects.filter(agent=agent))


def pins_of_many(agents: Collection[Agent]) -> dict[UUID, dict[str, str]]:
    """By the agent, in one statement."""
    found: dict[UUID, dict[str, str]] = {agent.pk: {} for agent in agents}
    rows = Pin.objects.filter(agent__in=found).order_by("tool__name")
    for agent, tool, label in rows.values_list("agent_id", "tool__name", "version__label"):
        found[agent][tool] = label
    return found


def session_pins(session: Session) -> dict[str, str]:
    return _labels_by_tool(Pin.objects.filter(session=session))


@transaction.atomic
def set_pins(*, agent: Agent, pins: Pins, by: Actor, giver: Caller | None = None) -> None:
    """From the agent's next request on; None takes a pin away. Raises `NotFound`, `Conflict`, and
    `Forbidden` where a `giver` who may not change tools pins a version that requires less."""
    Organization.objects.next_revision(agent.organization_id)
    before = pins_of(agent)
    for name, label in _check_pins(pins).items():
        tool = find_tool(agent.organization, name)
        if label is None:
            Pin.objects.filter(agent=agent, tool=tool).delete()
            continue
        version = _find_version(tool, label)
        if giver is not None and version.pk != tool.version_id and not may(giver, "change_tool"):
            assert tool.version is not None
            _check_as_strict(tool.name, tool.version.definition, version)
        Pin.objects.update_or_create(agent=agent, tool=tool, defaults={"version": version})
    said = {"before": {"pins": before}, "after": {"pins": pins_of(agent)}}
    record(
        Event.PIN_CHANGE, by=by, outcome=Outcome.CHANGED, subject=agent.slug, details=said
    )  # fmt: skip


def pin_session(*, session: Session, caller: Caller, pins: Pins) -> None:
    """Raises `NotFound` for a tool that the caller may not know, `Forbidden` for a version that
    requires less of its caller than the current one: that needs permission to change tools."""
    snapshot = snapshot_for(caller)
    for name, label in _check_pins(pins).items():
        if label is None:
            continue
        current = visible_tool(caller, snapshot, name)
        tool = Tool.objects.select_related("organization", "version").get(pk=current.id)
        version = _find_version(tool, label)
        if version.pk != current.version_id and not may(caller, "change_tool"):
            _check_as_strict(current.name, current.definition.raw, version)
        Pin.objects.create(session=session, tool=tool, version=version)


def _check_as_strict(name: str, now: Definition, version: ToolVersion) -> None:
    then = version.definition
    looser = (
        set(now["required_permissions"]) - set(then["required_permissions"])
        or (now["requires_confirmation"] and not then["requires_confirmation"])
        or any(now[key] != then[key] for key in _PERMISSIVE_FIELDS)
        or ToolDefinition(now).sensitive - ToolDefinition(then).sensitive
        or (then["rate_limit_per_minute"] or inf) > (now["rate_limit_per_minute"] or inf)
        or float(now["cost_per_invocation"]) > float(then["cost_per_invocation"])
        or now.get("cost_per_cache_hit") != then.get("cost_per_cache_hit")
        or now.get("transform") != then.get("transform")
    )
    if looser:
        raise Forbidden(
            f"The version {version.label} of {name} asks less of its caller than the one "
            "in use. Who may change tools may pin it.",
            code="pin_not_allowed",
        )


def _session_pins(caller: Caller, session: UUID | str, base: Snapshot) -> dict[UUID, CatalogTool]:
    """None for a session that is not the caller's: a request in it is refused elsewhere."""
    try:
        identifier = session if isinstance(session, UUID) else UUID(session)
    except ValueError:
        return {}
    rows = Pin.objects.filter(
        session_id=identifier,
        session__organization_id=caller.organization_id,
        session__user_id=caller.user_id,
    ).select_related("tool", "version")
    return {
        row.tool_id: catalog_tool(row.tool, row.version, base.organization, base.keys)
        for row in rows
    }


def _with_pins(base: Snapshot, pins: Mapping[UUID, CatalogTool]) -> Snapshot:
    """Switches beside the definition stay the tool's own: the pinned version is disabled with its
    tool."""
    tools = {
        name: _pin_tool(tool, pins[tool.id]) if tool.id in pins else tool
        for name, tool in base.tools.items()
    }
    return base.changed(tools=MappingProxyType(tools))


def _pin_tool(tool: CatalogTool, pin: CatalogTool) -> CatalogTool:
    return replace(
        pin,
        name=tool.name,
        status=tool.status,
        status_reason=tool.status_reason,
        critical=tool.critical,
        max_concurrency=tool.max_concurrency,
    )


def _find_version(tool: Tool, label: str) -> ToolVersion:
    version = tool.versions.filter(label=label).first() if "\x00" not in label else None
    if version is None:
        raise NotFound(f"{tool.name} has no version {label[:40]!r}.", code="version_not_found")
    check_version(tool, version)
    return version


def _check_pins(pins: Any) -> dict[str, str | None]:
    """Raises `Malformed`."""
    good = isinstance(pins, dict) and len(pins) <= MOST_PINS
    if not good or not all(one is None or isinstance(one, str) for one in pins.values()):
        raise Malformed(f"pins must be an object of at most {MOST_PINS} versions by tool names.")
    if any("\x00" in name for name in pins):
        raise Malformed("pins names no tool.")
    return dict(pins)


def _labels_by_tool(rows: Any) -> dict[str, str]:
    named = rows.order_by("tool__name").values_list("tool__name", "version__label")
    return dict(named)
