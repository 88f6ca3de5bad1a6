"""The in-memory registry of catalogs, per organization and revision.

Each process keeps one immutable snapshot of each catalog it serves. Each caller brings the
organization's current revision along (it comes with the token's query), so a process knows without
a query whether its snapshot is current; when not, it reads the tools that changed since, and only
those.
"""

import gc
import threading
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Q, QuerySet

from sandbox.spec import Backend, IsolationLevel
from tools import metrics
from tools.catalog.mcp.mcp_catalog import catalog_servers
from tools.catalog.sandbox.hosts import mounts_of
from tools.catalog.signatures.keys import keys_of
from tools.catalog.signatures.newest import SignatureFileState, newest
from tools.catalog.signatures.version_signatures import ALTERED, ROLLED_BACK, signed
from tools.catalog.snapshot import (
    SOURCE_FIELDS,
    CatalogAllowance,
    CatalogConfirmationRule,
    CatalogCredential,
    CatalogGroup,
    CatalogLicense,
    CatalogProfile,
    CatalogService,
    CatalogTool,
    Snapshot,
    WorkspaceQuota,
)
from tools.definitions.tool import Definition, ToolDefinition, ordered_definition, read_definition
from tools.errors import InvalidDefinition
from tools.models import (
    Allowance,
    ConfirmationRule,
    EgressCredential,
    LicenseTier,
    McpServer,
    OnDrift,
    Organization,
    Pin,
    SandboxProfile,
    Tool,
    ToolGroup,
    ToolService,
    ToolVersion,
)

_MANY = 1_000  # tools


class SnapshotRegistry:
    """The snapshots of this process."""

    def __init__(self) -> None:
        self._snapshots: dict[UUID, Snapshot] = {}
        self._loading = threading.Lock()

    def snapshot(self, organization_id: UUID, revision: int) -> Snapshot:
        """The catalog at `revision` or later."""
        known = self._snapshots.get(organization_id)
        if known is not None and known.revision >= revision:
            return known
        with self._loading:
            known = self._snapshots.get(organization_id)
            if known is None or known.revision < revision:
                known = self._snapshots[organization_id] = _load(organization_id, known)
            return known

    def as_it_stands(self, organization_id: UUID) -> Snapshot:
        """As the open transaction has it. Not cached, since the transaction may be rolled back."""
        return _load(organization_id, self._snapshots.get(organization_id), kept=False)

    def forget(self) -> None:
        self._snapshots.clear()
        newest.forget()


registry = SnapshotRegistry()


def _load(organization_id: UUID, known: Snapshot | None, *, kept: bool = True) -> Snapshot:
    """Reads the revision first: later commits are read now or with the next revision."""
    organization = Organization.objects.select_related("tier").get(pk=organization_id)
    noted = newest.read_state(organization_id)
    keys, changed, pinned = _signed_rows(organization_id, known, noted)
    tools = dict(known.tools) if known else {}
    names = {tool.id: tool.name for tool in tools.values()} if known else {}
    for row in changed:
        tools.pop(names.get(row.pk, row.name), None)
    for row in changed:
        if row.deleted_at is None and row.version is not None:
            tools[row.name] = catalog_tool(row, row.version, organization.slug, keys, noted)
    if kept:
        _note(organization_id, tools)
        _let_alone(changed)
    groups = {
        row.name: catalog_group(row)
        for row in ToolGroup.objects.select_related("parent").filter(
            organization_id=organization_id
        )
    }
    snapshot = Snapshot(
        organization_id=organization_id,
        organization=organization.slug,
        revision=organization.revision,
        tier=organization.tier,
        tools=MappingProxyType(tools),
        groups=MappingProxyType(groups),
        minimum_isolation=IsolationLevel(organization.minimum_isolation),
        allowed_hosts=tuple(organization.allowed_hosts),
        max_concurrency=organization.max_concurrency,
        workspace=WorkspaceQuota(
            organization.workspace_max_files, organization.workspace_max_bytes
        ),
        profiles=MappingProxyType(_profiles(organization_id)),
        credentials=MappingProxyType(_credentials(organization_id)),
        time_zone=ZoneInfo(organization.time_zone),
        license=CatalogLicense(
            expires_at=organization.license_expires_at,
            grace_days=organization.license_grace_days,
            fallback=LicenseTier.objects.order_by("rank").first(),
        ),
        allowances=MappingProxyType(_allowances(organization_id)),
        confirmation_rules=_confirmation_rules(organization_id),
        source_groups=MappingProxyType(_source_groups(organization_id)),
        services=MappingProxyType(_services(organization_id)),
        mcp_servers=MappingProxyType(catalog_servers(organization_id)),
        keys=keys,
        pins=_pins(pinned, organization.slug, keys),
    )
    if kept:
        _show(snapshot)
    return snapshot


def _signed_rows(
    organization_id: UUID, known: Snapshot | None, noted: SignatureFileState
) -> tuple[Mapping[str, bytes], list[Tool], list[Pin]]:
    """Keys are read after the versions that they signed, so that a new key is included."""
    keys = keys_of(organization_id, noted)
    while True:
        changed = list(_changed(organization_id, known, keys))
        pins = Pin.objects.filter(agent__organization_id=organization_id)
        pinned = list(pins.select_related("tool", "version"))
        now = keys_of(organization_id)
        if now == keys:
            return keys, changed, pinned
        keys = now


def _changed(
    organization_id: UUID, known: Snapshot | None, keys: Mapping[str, bytes]
) -> QuerySet[Tool]:
    """Rows to read again; those that did not verify too, and with another set of keys all."""
    rows = Tool.objects.filter(organization_id=organization_id).select_related("version")
    if known is None or known.keys != keys:
        return rows
    flawed = [tool.id for tool in known.tools.values() if tool.flaw]
    return rows.filter(Q(revision__gt=known.revision) | Q(pk__in=flawed))


def _pins(
    rows: list[Pin], organization: str, keys: Mapping[str, bytes]
) -> dict[UUID, dict[UUID, CatalogTool]]:
    """By agent and tool."""
    found: dict[UUID, dict[UUID, CatalogTool]] = {}
    for row in rows:
        assert row.agent_id is not None
        tool = catalog_tool(row.tool, row.version, organization, keys)
        found.setdefault(row.agent_id, {})[row.tool_id] = tool
    return found


def _note(organization_id: UUID, tools: Mapping[str, CatalogTool]) -> None:
    """Records the version numbers after commit: a version that was rolled back was never in use."""
    numbers = {tool.id: tool.number for tool in tools.values() if not tool.flaw}
    transaction.on_commit(lambda: newest.saw(organization_id, numbers))


def _let_alone(read: list[Tool]) -> None:
    """Exempts the tools that were read from garbage collection, which takes a third of a second
    with 10,000 tools. Garbage since the last call is collected first."""
    if len(read) >= _MANY:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def _allowances(organization_id: UUID) -> dict[UUID, tuple[CatalogAllowance, ...]]:
    """By agent."""
    found: dict[UUID, tuple[CatalogAllowance, ...]] = {}
    for row in Allowance.objects.filter(organization_id=organization_id).order_by("pk"):
        one = CatalogAllowance(row.pk, row.tool_name, row.kind, row.period, row.amount)
        found[row.agent_id] = (*found.get(row.agent_id, ()), one)
    return found


def _confirmation_rules(organization_id: UUID) -> tuple[CatalogConfirmationRule, ...]:
    rows = ConfirmationRule.objects.filter(organization_id=organization_id, enabled=True)
    return tuple(catalog_confirmation_rule(row) for row in rows)


def _source_groups(organization_id: UUID) -> dict[tuple[str, str], frozenset[str]]:
    """Default groups of sources that have some: by how a definition names the source, and its
    name."""
    kinds: tuple[tuple[str, type[ToolService] | type[McpServer]], ...] = (
        (SOURCE_FIELDS["tool-service"], ToolService),
        (SOURCE_FIELDS["mcp-tool"], McpServer),
    )
    return {
        (naming, row.name): frozenset(row.default_groups or ())
        for naming, model in kinds
        for row in model.objects.filter(
            organization_id=organization_id, default_groups__isnull=False
        )
    }


def _services(organization_id: UUID) -> dict[str, CatalogService]:
    rows = ToolService.objects.filter(organization_id=organization_id)
    return {
        row.name: CatalogService(row.name, row.request_queue, row.closed_because) for row in rows
    }


def _profiles(organization_id: UUID) -> dict[str, CatalogProfile]:
    rows = SandboxProfile.objects.filter(organization_id=organization_id)
    return {row.name: catalog_profile(row) for row in rows}


def _credentials(organization_id: UUID) -> dict[str, CatalogCredential]:
    rows = EgressCredential.objects.filter(organization_id=organization_id)
    return {
        row.name: CatalogCredential(row.pk, organization_id, row.header, bytes(row.sealed))
        for row in rows
    }


def _show(snapshot: Snapshot) -> None:
    """The gauges of specification S1, 8.1: how many tools are open per group and per state."""
    organization = snapshot.organization
    active = [tool for tool in snapshot.tools.values() if tool.enabled]
    groups = Counter(name for tool in active for name in snapshot.groups_of(tool))
    states = Counter(name for tool in active for name in tool.definition.states)
    for name, count in groups.items():
        metrics.group_availability.labels(organization, name).set(count)
    for name, count in states.items():
        metrics.state_availability.labels(organization, name).set(count)


def catalog_tool(
    row: Tool,
    version: ToolVersion,
    organization: str,
    keys: Mapping[str, bytes],
    noted: SignatureFileState | None = None,
) -> CatalogTool:
    """A tool in one of its versions. `noted` is given for the version in use, to detect a
    rollback."""
    flaw = _flaw(row, version, organization, keys, noted)
    raw = _readable(row, version) if flaw else ordered_definition(version.definition)
    return CatalogTool(
        id=row.pk,
        name=row.name,
        status=row.status,
        version_id=version.pk,
        version=version.label,
        number=version.number,
        digest=version.digest,
        signature=version.signature,
        key_id=version.key_id,
        definition=ToolDefinition(raw),
        created_at=row.created_at,
        updated_at=row.updated_at,
        origin=version.origin,
        critical=row.critical,
        status_reason=row.status_reason,
        max_concurrency=row.max_concurrency,
        on_drift=OnDrift(row.on_drift),
        flaw=flaw,
    )


def _flaw(
    row: Tool,
    version: ToolVersion,
    organization: str,
    keys: Mapping[str, bytes],
    noted: SignatureFileState | None,
) -> str:
    own = version.tool_id == row.pk
    if not own or not signed(organization=organization, name=row.name, version=version, keys=keys):
        return ALTERED
    if noted is not None and version.number < noted.numbers.get(row.pk, 0):
        return ROLLED_BACK
    return ""


def _readable(row: Tool, version: ToolVersion) -> Definition:
    """A row that was edited into an invalid definition must not break the catalog."""
    try:
        return ordered_definition(read_definition(version.definition))
    except (InvalidDefinition, UnicodeEncodeError):
        blank = {"name": row.name, "type": "code", "description": ALTERED, "group": []}
        return read_definition(blank | {"implementation": {"source": "def main(p): ...\n"}})


def catalog_group(row: ToolGroup) -> CatalogGroup:
    return CatalogGroup(
        name=row.name,
        description=row.description,
        permissions=frozenset(row.permissions),
        id=row.pk,
        parent=row.parent.name if row.parent else None,
        schedule=tuple(row.schedule),
        max_queue_age_s=row.max_queue_age_s,
        max_cpu_percent=row.max_cpu_percent,
    )


def catalog_confirmation_rule(row: ConfirmationRule) -> CatalogConfirmationRule:
    return CatalogConfirmationRule(
        name=row.name,
        tool_name=row.tool_name,
        group_name=row.group_name,
        agent_id=row.agent_id,
        min_cost=row.min_cost,
        side_effects=row.side_effects,
        first_use=row.first_use,
        approvals_needed=row.approvals_needed,
    )


def catalog_profile(row: SandboxProfile) -> CatalogProfile:
    return CatalogProfile(
        name=row.name,
        backend=Backend(row.backend),
        minimum_isolation=IsolationLevel(row.minimum_isolation),
        mounts=mounts_of(row.allowed_paths) if row.allow_filesystem else (),
        allow_network=row.allow_network,
        allowed_hosts=tuple(row.allowed_hosts),
        proxy=row.proxy,
        network_when_restricted=row.network_when_restricted,
        memory_bytes=row.max_memory_bytes,
        cpu_s=row.max_cpu_s,
        processes=row.max_processes,
        disk_bytes=row.max_disk_bytes,
        files=row.max_files,
        quota_bytes=row.quota_bytes,
        quota_files=row.quota_files,
    )
