"""What there is, in memory, per organization and revision.

Each process keeps one immutable snapshot of each catalog it serves. Whoever calls brings the
organization's current revision along (it comes with the token's query), so a process knows without
asking whether its snapshot is current; when not, it reads the tools that changed since, and only
those.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from sandbox.spec import Backend, IsolationLevel, Mount
from tools import metrics
from tools.catalog import sealing, versions
from tools.catalog.hosts import Header, Item
from tools.catalog.paths import mounts_of
from tools.definitions.schemas import Validator
from tools.definitions.tool import DEFAULT_GROUP, ToolDefinition, in_order
from tools.definitions.vocabulary import ToolType
from tools.models import (
    EgressCredential,
    LicenseTier,
    Organization,
    SandboxProfile,
    Tool,
    ToolGroup,
    ToolStatus,
    ToolVersion,
)

Remembered = TypeVar("Remembered")
_REMEMBERED = 500


@dataclass(frozen=True)
class CatalogTool:
    """One tool as the gates and the runners see it."""

    id: UUID
    name: str
    status: str
    version_id: UUID
    version: str
    number: int
    digest: str
    signature: str
    key_id: str
    definition: ToolDefinition
    created_at: Any
    updated_at: Any
    origin: str = ""  # who is not named is not known

    @property
    def enabled(self) -> bool:
        return self.status == ToolStatus.ACTIVE

    @cached_property
    def custom(self) -> bool:
        return self.definition.type != ToolType.BUILTIN

    @property
    def input_validator(self) -> Validator:
        return versions.input_validator(self.digest, self.definition)

    @property
    def output_validator(self) -> Validator | None:
        return versions.output_validator(self.digest, self.definition)


@dataclass(frozen=True)
class CatalogGroup:
    name: str
    description: str
    permissions: frozenset[str]


@dataclass(frozen=True)
class CatalogProfile:
    """A sandbox profile as the gates and the runners see it. `mounts` is empty unless allowed."""

    name: str
    backend: Backend
    minimum_isolation: IsolationLevel
    mounts: tuple[Mount, ...]
    allow_network: bool
    allowed_hosts: tuple[Item, ...]
    proxy: bool
    network_when_restricted: bool
    memory_bytes: int
    cpu_s: float
    processes: int | None
    disk_bytes: int
    files: int


@dataclass(frozen=True)
class CatalogCredential:
    """Kept as it is stored; opened only for a run that needs it."""

    id: UUID
    organization_id: UUID
    header: str
    sealed: bytes = field(repr=False)

    def opened(self) -> Header:
        """Name and value of the header. Raises `sealing.Unreadable`."""
        organization, row = self.organization_id, self.id
        return self.header, sealing.unseal(self.sealed, organization=organization, row=row)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An organization's catalog at one revision. Never changed; replaced.

    `remember` keeps what was worked out about it, for as long as it stands.
    """

    organization_id: UUID
    organization: str
    revision: int
    tier: LicenseTier
    tools: MappingProxyType[str, CatalogTool] = field(repr=False)
    groups: MappingProxyType[str, CatalogGroup] = field(repr=False)
    minimum_isolation: IsolationLevel = IsolationLevel.STANDARD
    allowed_hosts: tuple[Item, ...] = ()
    profiles: MappingProxyType[str, CatalogProfile] = field(
        default=MappingProxyType({}), repr=False
    )
    credentials: MappingProxyType[str, CatalogCredential] = field(
        default=MappingProxyType({}), repr=False
    )

    _remembered: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def tool(self, name: str) -> CatalogTool | None:
        return self.tools.get(name)

    def knows_group(self, name: str) -> bool:
        return name == DEFAULT_GROUP or name in self.groups

    def remember(self, key: Hashable, work: Callable[[], Remembered]) -> Remembered:
        """What `work` gives, worked out once per key; keys that clients make are bounded."""
        try:
            return self._remembered[key]
        except KeyError:
            found = work()
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = found
        return found

    @cached_property
    def sorted_tools(self) -> tuple[CatalogTool, ...]:
        return tuple(sorted(self.tools.values(), key=lambda tool: tool.name.lower()))


class Registry:
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

    def forget(self) -> None:
        self._snapshots.clear()


registry = Registry()


def _load(organization_id: UUID, known: Snapshot | None) -> Snapshot:
    """Read the revision first: what is committed later is read now or with the next revision."""
    organization = Organization.objects.select_related("tier").get(pk=organization_id)
    changed = Tool.objects.filter(
        organization_id=organization_id, revision__gt=known.revision if known else -1
    ).select_related("version")
    tools = dict(known.tools) if known else {}
    names = {tool.id: tool.name for tool in tools.values()} if known else {}
    for row in changed:
        tools.pop(names.get(row.pk, row.name), None)
    for row in changed:
        if row.deleted_at is None and row.version is not None:
            tools[row.name] = catalog_tool(row, row.version)
    groups = {
        row.name: CatalogGroup(row.name, row.description, frozenset(row.permissions))
        for row in ToolGroup.objects.filter(organization_id=organization_id)
    }
    _show(organization.slug, tools)
    return Snapshot(
        organization_id=organization_id,
        organization=organization.slug,
        revision=organization.revision,
        tier=organization.tier,
        tools=MappingProxyType(tools),
        groups=MappingProxyType(groups),
        minimum_isolation=IsolationLevel(organization.minimum_isolation),
        allowed_hosts=tuple(organization.allowed_hosts),
        profiles=MappingProxyType(_profiles(organization_id)),
        credentials=MappingProxyType(_credentials(organization_id)),
    )


def _profiles(organization_id: UUID) -> dict[str, CatalogProfile]:
    rows = SandboxProfile.objects.filter(organization_id=organization_id)
    return {row.name: catalog_profile(row) for row in rows}


def _credentials(organization_id: UUID) -> dict[str, CatalogCredential]:
    rows = EgressCredential.objects.filter(organization_id=organization_id)
    return {
        row.name: CatalogCredential(row.pk, organization_id, row.header, bytes(row.sealed))
        for row in rows
    }


def _show(organization: str, tools: dict[str, CatalogTool]) -> None:
    """The gauges of specification S1, 8.1: how many tools stand open per group and per state."""
    active = [tool.definition for tool in tools.values() if tool.enabled]
    groups = Counter(name for tool in active for name in tool.groups)
    states = Counter(name for tool in active for name in tool.states)
    for name, count in groups.items():
        metrics.group_availability.labels(organization, name).set(count)
    for name, count in states.items():
        metrics.state_availability.labels(organization, name).set(count)


def catalog_tool(row: Tool, version: ToolVersion) -> CatalogTool:
    """A tool in one of its versions."""
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
        definition=ToolDefinition(in_order(version.definition)),
        created_at=row.created_at,
        updated_at=row.updated_at,
        origin=version.origin,
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
    )
