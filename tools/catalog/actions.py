"""Changes the tools of a catalog. Every change increments its revision in the same transaction,
so that other processes see it with their next request."""

from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from sandbox.spec import IsolationLevel
from tools.catalog.bounds import read_bound
from tools.catalog.groups import note_groups
from tools.catalog.locked_catalog import LockedCatalog
from tools.catalog.sandbox.profiles import check_reference
from tools.catalog.search.tool_words import forget_words, note_words
from tools.catalog.seats import check_room
from tools.catalog.services.services import check_service
from tools.catalog.signatures import newest
from tools.catalog.signatures.keys import current_key
from tools.catalog.signatures.version_signatures import (
    check_current,
    check_version,
    origin_of,
    verifies,
)
from tools.catalog.signatures.versions import next_label, statement_of
from tools.catalog.tiers import forced_level, require_level, tier_of
from tools.catalog.uniqueness import check_name
from tools.catalog.workflow.chains import check_chain, check_not_called
from tools.definitions.descriptors import canonical_keys
from tools.definitions.signing import PrivateSigningKey
from tools.definitions.tool import (
    DEFAULT_GROUP,
    Definition,
    ToolDefinition,
    definition_digest,
    passes_arguments,
    read_definition,
)
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, InvalidDefinition, NotFound
from tools.models import McpServer, Organization, Tool, ToolStatus, ToolVersion


@transaction.atomic
def register_tool(
    *,
    organization: Organization,
    definition: Any,
    by: Actor,
    builtin: bool = False,
    note: str = "",
    catalog: LockedCatalog | None = None,
) -> Tool:
    """A new tool with its first version. Raises `InvalidDefinition`, `Conflict`, `Forbidden`.

    `catalog` is for a caller that registers many tools in one transaction."""
    canonical = read(definition, builtin=builtin)
    revision = Organization.objects.next_revision(organization.pk)
    catalog = catalog or LockedCatalog.for_organization(organization, by)
    if not builtin:
        check_room(organization.pk, catalog.tier)
    check_reference(organization, canonical)
    check_service(organization, canonical)
    check_chain(organization, canonical)
    check_name(organization, canonical["name"])
    tool = Tool(
        organization=organization,
        name=canonical["name"],
        type=canonical["type"],
        revision=revision,
    )
    version = _version(
        tool, canonical, label=_label(definition), by=by, note=note or _change_note(definition),
        key=catalog.signing_key,
    )  # fmt: skip
    tool.version = version  # its row follows within the transaction
    tool.save(force_insert=True)
    version.save(force_insert=True)
    note_words(tool, new=True)
    _check_level(tool)
    catalog.note_groups(_groups(canonical))
    _record(Event.TOOL_CREATE, tool, by, None, canonical)
    return tool


@transaction.atomic
def update_tool(*, tool: Tool, definition: Any, by: Actor, note: str = "") -> Tool:
    """A new version of the tool; none when the definition equals the current one.

    Raises `Conflict` also where the signature of the current one is invalid.
    """
    canonical = read(definition, builtin=tool.type == ToolType.BUILTIN)
    tool = changing(tool)
    check_current(tool)
    _check_identity(tool, canonical)
    check_reference(tool.organization, canonical)
    check_service(tool.organization, canonical)
    check_chain(tool.organization, canonical)
    assert tool.version is not None
    if definition_digest(canonical) == tool.version.digest:
        return tool
    before = tool.version.definition
    add_version(
        tool, canonical, label=_label(definition), by=by, note=note or _change_note(definition)
    )
    note_groups(tool.organization, _groups(canonical))
    _record(Event.TOOL_UPDATE, tool, by, before, canonical)
    return tool


def amended(definition: Definition, changes: dict[str, Any]) -> dict[str, Any]:
    """A definition with some fields replaced, in any dialect. Parameters and schema go together."""
    wanted = canonical_keys(changes, [])
    kept = dict(definition)
    if {"parameters", "input_schema"} & wanted.keys() and passes_arguments(kept):
        kept.pop("argument_validation")  # the new parameters decide (ruling 13)
    if "parameters" in wanted and "input_schema" not in wanted:
        kept.pop("input_schema")
    if "input_schema" in wanted and "parameters" not in wanted:
        kept["parameters"] = []
    return kept | wanted


@transaction.atomic
def restore_version(*, tool: Tool, label: str, by: Actor) -> Tool:
    """Make an earlier version the current one, as a new version: history is never rewritten."""
    tool = changing(tool)
    version = tool.versions.filter(label=label).first()
    if version is None:
        raise NotFound(f"{tool.name} has no version {label[:40]!r}.", code="version_not_found")
    assert tool.version is not None
    check_version(tool, version)
    if version.pk == tool.version.pk or (
        version.digest == tool.version.digest and verifies(tool, tool.version)
    ):
        return tool
    check_reference(tool.organization, version.definition)
    check_service(tool.organization, version.definition)
    check_chain(tool.organization, version.definition)
    before = tool.version.definition
    add_version(tool, version.definition, label=None, by=by, note=f"Restores {label}.")
    _record(Event.TOOL_RESTORE, tool, by, before, version.definition, restored=label)
    return tool


@transaction.atomic
def set_enabled(*, tool: Tool, enabled: bool, by: Actor, reason: str = "") -> Tool:
    """Enable or disable the tool; running executions finish. Safe to repeat."""
    tool = changing(tool)
    if tool.status == ToolStatus.PENDING:
        if enabled:
            _check_server(tool)
    elif tool.status == ToolStatus.QUARANTINED:
        raise Conflict(
            f"{tool.name} is {tool.status}; it must be approved first.", code=f"tool_{tool.status}"
        )
    wanted = ToolStatus.ACTIVE if enabled else ToolStatus.DISABLED
    if tool.status != wanted:
        if enabled and tool.type != ToolType.BUILTIN:
            check_room(tool.organization_id, tier_of(tool.organization_id), beside=tool)
        before = {"status": tool.status}
        tool.status, tool.status_reason = wanted, ""
        tool.save(update_fields=["status", "status_reason", "updated_at"])
        event = Event.TOOL_ENABLE if enabled else Event.TOOL_DISABLE
        _record(event, tool, by, before, {"status": wanted}, reason=reason)
    return tool


@transaction.atomic
def set_pending(*, tool: Tool, reason: str, by: Actor) -> Tool:
    """Disable the tool until what its implementation names exists."""
    tool = changing(tool)
    before = {"status": tool.status}
    tool.status, tool.status_reason = ToolStatus.PENDING, reason[:200]
    tool.save(update_fields=["status", "status_reason", "updated_at"])
    _record(Event.TOOL_DISABLE, tool, by, before, {"status": tool.status}, reason=reason)
    return tool


def _check_server(tool: Tool) -> None:
    """Raises `Conflict` while the MCP server that a pending tool names is not there."""
    assert tool.version is not None
    name = tool.version.definition["implementation"].get("server")
    there = McpServer.objects.filter(organization=tool.organization_id, name=name)
    if tool.type == ToolType.MCP and not there.exists():
        raise Conflict(
            f"{tool.name} is pending: there is no MCP server {name}. Add it first.",
            code="tool_pending",
        )


@transaction.atomic
def set_critical(*, tool: Tool, critical: bool, by: Actor) -> Tool:
    """Set whether every call needs two approvals, from the next one on. Safe to repeat."""
    tool = changing(tool)
    if tool.critical != critical:
        tool.critical = critical
        tool.save(update_fields=["critical", "updated_at"])
        _record(Event.TOOL_CRITICAL, tool, by, {"critical": not critical}, {"critical": critical})
    return tool


@transaction.atomic
def set_concurrency(*, tool: Tool, most: Any, by: Actor) -> Tool:
    """Set how many of its calls run at once, from the next claim on; None is no limit."""
    most = read_bound("max_concurrency", most)
    tool = changing(tool)
    if tool.max_concurrency != most:
        before = {"max_concurrency": tool.max_concurrency}
        tool.max_concurrency = most
        tool.save(update_fields=["max_concurrency", "updated_at"])
        _record(Event.TOOL_UPDATE, tool, by, before, {"max_concurrency": most})
    return tool


@transaction.atomic
def set_switches(*, tool: Tool, definition: dict[str, Any], by: Actor) -> bool:
    """Set the given switches that are shown beside a definition; returns whether they changed."""
    changed = False
    enabled, critical = definition.get("enabled"), definition.get("critical")
    if isinstance(enabled, bool) and enabled != tool.enabled:
        set_enabled(tool=tool, enabled=enabled, by=by)
        changed = True
    if isinstance(critical, bool) and critical != tool.critical:
        set_critical(tool=tool, critical=critical, by=by)
        changed = True
    most = definition.get("max_concurrency", tool.max_concurrency)
    if read_bound("max_concurrency", most) != tool.max_concurrency:
        set_concurrency(tool=tool, most=most, by=by)
        changed = True
    return changed


@transaction.atomic
def delete_tool(*, tool: Tool, by: Actor) -> None:
    """Delete the tool from the catalog; its versions stay, since the audit log refers to them.

    Raises `Conflict` for a built-in, and while chains call it.
    """
    tool = changing(tool)
    if tool.type == ToolType.BUILTIN:
        raise Conflict(
            "A built-in tool cannot be deleted; disable it instead.", code="tool_is_builtin"
        )
    check_not_called(tool.organization, tool.name)
    before = {"status": tool.status, "deleted_at": None}
    tool.status, tool.deleted_at = ToolStatus.DISABLED, timezone.now()
    tool.save(update_fields=["status", "deleted_at", "updated_at"])
    forget_words(tool)
    after = {"status": tool.status, "deleted_at": tool.deleted_at}
    _record(Event.TOOL_DELETE, tool, by, before, after)
    _note_end(tool)


def find_tool(organization: Organization, name: str) -> Tool:
    """Raises `NotFound`, also for another organization's tool."""
    rows = Tool.objects.present().select_related("version", "organization__tier")
    found = None
    if "\x00" not in name:  # which PostgreSQL cannot store
        found = rows.filter(organization=organization, name=name).first()
    if found is None:
        raise NotFound(f"There is no tool {name[:128]!r}.", code="tool_not_found")
    return found


def read(definition: Any, *, builtin: bool) -> Definition:
    canonical = read_definition(definition)
    if not builtin and canonical["type"] == ToolType.BUILTIN:
        flaw = {"field": "type", "message": "built-in tools come with the product"}
        raise InvalidDefinition("A built-in tool cannot be registered.", errors=[flaw])
    tool = ToolDefinition(canonical)
    if not tool.composite and tool.timeout_s > settings.EXECUTION_TIMEOUT_S:
        flaw = {
            "field": "constraints.max_execution_time",
            "message": f"this installation allows at most {settings.EXECUTION_TIMEOUT_S} seconds",
        }
        raise InvalidDefinition(
            "The definition was not accepted: see details.errors.", errors=[flaw]
        )
    return canonical


def _label(definition: Any) -> str | None:
    label = definition.get("version")
    return str(label) if label else None


def _change_note(definition: Any) -> str:
    """The author's reason for the version."""
    return str(definition.get("change_note") or "")


def _check_level(tool: Tool) -> None:
    """Raises `Forbidden` when the current version asks for more than the license includes."""
    version = tool.version
    assert version is not None
    definition = ToolDefinition(version.definition)
    forced = forced_level(definition, version.origin)
    require_level(tool.organization_id, IsolationLevel(definition.isolation), forced)


def changing(tool: Tool) -> Tool:
    """The row as it is now, locked behind its organization's, carrying the next revision."""
    revision = Organization.objects.next_revision(tool.organization_id)
    fresh = (
        Tool.objects.present().select_related("version", "organization").filter(pk=tool.pk).first()
    )
    if fresh is None:
        raise NotFound(f"There is no tool {tool.name!r} any more.", code="tool_not_found")
    fresh.revision = revision
    fresh.save(update_fields=["revision", "updated_at"])
    return fresh


def _check_identity(tool: Tool, canonical: Definition) -> None:
    assert tool.version is not None
    current = tool.version.definition
    fixed = ["name", "type"] + (["implementation"] if tool.type == ToolType.BUILTIN else [])
    flaws = [
        {"field": field, "message": "cannot be changed; register another tool instead"}
        for field in fixed
        if canonical[field] != current[field]
    ]
    if flaws:
        raise InvalidDefinition(
            "The definition was not accepted: see details.errors.", errors=flaws
        )


def add_version(
    tool: Tool, canonical: Definition, *, label: str | None, by: Actor, note: str = ""
) -> None:
    key = current_key(tool.organization, by)
    tool.version = _version(tool, canonical, label=label, by=by, note=note, key=key)
    tool.version.save(force_insert=True)
    tool.save(update_fields=["version", "updated_at"])
    note_words(tool)
    _check_level(tool)


def _version(
    tool: Tool,
    canonical: Definition,
    *,
    label: str | None,
    by: Actor,
    note: str,
    key: PrivateSigningKey,
) -> ToolVersion:
    """The signed next version of the tool, not saved."""
    latest = tool.versions.order_by("-number").first() if tool.version else None
    number = latest.number + 1 if latest else 1
    label = next_label(tool, canonical, label)
    version_digest, origin = definition_digest(canonical), origin_of(tool, canonical, by)
    statement = statement_of(
        organization=tool.organization.slug,
        tool=tool.pk,
        name=tool.name,
        number=number,
        label=label,
        version_digest=version_digest,
        origin=origin,
    )
    return ToolVersion(
        tool=tool,
        number=number,
        label=label,
        definition=canonical,
        digest=version_digest,
        key_id=key.key_id,
        signature=key.sign(statement),
        created_by=f"{by.kind}:{by.name}",
        note=note[:1000],
        origin=origin,
    )


def _note_end(tool: Tool) -> None:
    """Records that no version is current, so that an edited row cannot restore a deleted tool."""
    latest = tool.versions.aggregate(latest=Max("number"))["latest"] or 0
    ended = {tool.pk: latest + 1}
    transaction.on_commit(lambda: newest.newest.saw(tool.organization_id, ended))


def _groups(canonical: Definition) -> list[str]:
    named: list[str] | None = canonical["group"]
    return [DEFAULT_GROUP] if named is None else named


def _record(
    event: Event,
    tool: Tool,
    by: Actor,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    **more: Any,
) -> None:
    version = tool.version
    record(
        event,
        by=by,
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=version.digest if version else "",
        details={
            "version": version.label if version else None,
            "origin": version.origin if version else None,
            **difference(before, after),
            **more,
        },
    )
