"""An organization's catalog in memory, at one revision: immutable, and shared by all requests of a
process."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from sandbox.spec import Backend, IsolationLevel, Mount
from tools.builtin.manifest import ISOLATED
from tools.catalog.mcp.mcp_catalog import CatalogServer
from tools.catalog.sandbox.hosts import Header, Item
from tools.catalog.signatures import sealed_texts, versions
from tools.definitions.schemas.json_schemas import Validator
from tools.definitions.tool import DEFAULT_GROUP, ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.models import VOUCHED, LicenseTier, OnDrift, ToolStatus

Remembered = TypeVar("Remembered")
_REMEMBERED = 500
UTC = ZoneInfo("UTC")
SOURCE_FIELDS = {
    "tool-service": "service",
    "mcp-tool": "server",
}  # how a definition names its source


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
    origin: str = ""  # the default for an unknown author
    critical: bool = False
    status_reason: str = ""
    max_concurrency: int | None = None
    on_drift: OnDrift = OnDrift.REFUSE
    flaw: str = ""  # why its signature is invalid

    @property
    def enabled(self) -> bool:
        return self.status == ToolStatus.ACTIVE

    @cached_property
    def custom(self) -> bool:
        return self.definition.type != ToolType.BUILTIN

    @property
    def vouched(self) -> bool:
        """Whether the product or a person answers for its code."""
        return self.origin in VOUCHED

    @property
    def requests_network(self) -> bool:
        """Of a built-in tool: whether it is run with a network."""
        known = ISOLATED.get(self.definition.raw["implementation"]["entry_point"])
        return known is not None and known.network

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
    id: UUID | None = None
    parent: str | None = None
    schedule: tuple[Item, ...] = ()
    max_queue_age_s: float | None = None
    max_cpu_percent: float | None = None


@dataclass(frozen=True)
class CatalogLicense:
    """The terms of the organization's license beside its tier."""

    expires_at: datetime | None = None
    grace_days: int = 0
    fallback: LicenseTier | None = None  # the lowest tier, which applies after its expiry


@dataclass(frozen=True)
class CatalogAllowance:
    """What one agent may use in a period, of all tools or, where one is named, of it."""

    id: UUID
    tool_name: str
    kind: str
    period: str
    amount: Decimal


@dataclass(frozen=True)
class CatalogConfirmationRule:
    """A rule for which calls need an approval. Every given field must match."""

    name: str
    tool_name: str
    group_name: str
    agent_id: UUID | None
    min_cost: Decimal | None
    side_effects: bool
    first_use: bool
    approvals_needed: int


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
    quota_bytes: int
    quota_files: int


@dataclass(frozen=True)
class CatalogCredential:
    """Kept encrypted; decrypted only for a run that needs it."""

    id: UUID
    organization_id: UUID
    header: str
    sealed: bytes = field(repr=False)

    def opened(self) -> Header:
        """Name and value of the header. Raises `UnreadableSealedText`."""
        organization, row = self.organization_id, self.id
        return self.header, sealed_texts.unseal(self.sealed, organization=organization, row=row)


@dataclass(frozen=True, slots=True)
class WorkspaceQuota:
    """The limits of an organization's workspace."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CatalogService:
    """A tool service as the gates and the runners see it."""

    name: str
    request_queue: str
    closed_because: str = ""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An organization's catalog at one revision. Never changed; replaced.

    `settle` and `remember` cache what was computed from it, for its lifetime.
    """

    organization_id: UUID
    organization: str
    revision: int
    tier: LicenseTier
    tools: MappingProxyType[str, CatalogTool] = field(repr=False)
    groups: MappingProxyType[str, CatalogGroup] = field(repr=False)
    minimum_isolation: IsolationLevel = IsolationLevel.STANDARD
    allowed_hosts: tuple[Item, ...] = ()
    max_concurrency: int | None = None
    workspace: WorkspaceQuota = WorkspaceQuota(10_000, 1024**3)
    profiles: MappingProxyType[str, CatalogProfile] = field(
        default=MappingProxyType({}), repr=False
    )
    credentials: MappingProxyType[str, CatalogCredential] = field(
        default=MappingProxyType({}), repr=False
    )
    time_zone: ZoneInfo = UTC
    license: CatalogLicense = CatalogLicense()
    allowances: MappingProxyType[UUID, tuple[CatalogAllowance, ...]] = field(
        default=MappingProxyType({}), repr=False
    )
    confirmation_rules: tuple[CatalogConfirmationRule, ...] = ()
    source_groups: MappingProxyType[tuple[str, str], frozenset[str]] = field(
        default=MappingProxyType({}), repr=False
    )
    services: MappingProxyType[str, CatalogService] = field(
        default=MappingProxyType({}), repr=False
    )
    mcp_servers: MappingProxyType[str, CatalogServer] = field(
        default=MappingProxyType({}), repr=False
    )
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    pins: Mapping[UUID, Mapping[UUID, CatalogTool]] = field(default_factory=dict, repr=False)

    _settled: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    _remembered: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, repr=False)

    def tool(self, name: str) -> CatalogTool | None:
        return self.tools.get(name)

    def knows_group(self, name: str) -> bool:
        return name == DEFAULT_GROUP or name in self.groups

    def groups_of(self, tool: CatalogTool) -> frozenset[str]:
        """The groups a tool is in: its own or its source's, and their parents (ruling 19)."""
        own = self.own_groups(tool)
        return self.settle(("groups", own), lambda: self._with_parents(own))

    def own_groups(self, tool: CatalogTool) -> frozenset[str]:
        """Those it names, else its source's, else `default`."""
        raw = tool.definition.raw
        naming = SOURCE_FIELDS.get(raw["type"])
        if raw["group"] is not None or naming is None:
            return tool.definition.groups
        source = (naming, str(raw["implementation"].get(naming)))
        return self.source_groups.get(source, tool.definition.groups)

    def _with_parents(self, names: frozenset[str]) -> frozenset[str]:
        reached: set[str] = set()
        ahead = set(names)
        while ahead:
            name = ahead.pop()
            reached.add(name)
            group = self.groups.get(name)
            if group is not None and group.parent is not None and group.parent not in reached:
                ahead.add(group.parent)
        return frozenset(reached)

    def settle(self, key: Hashable, work: Callable[[], Remembered]) -> Remembered:
        """The result of `work`, computed once: for keys that the catalog itself makes."""
        try:
            return self._settled[key]
        except KeyError:
            found = self._settled[key] = work()
            return found

    def remember(self, key: Hashable, work: Callable[[], Remembered]) -> Remembered:
        """The same for keys that clients make: the oldest of many is forgotten."""
        try:
            return self._remembered[key]
        except KeyError:
            found = work()
        self._remembered[key] = found
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return found

    def changed(self, **fields: Any) -> Self:
        """A changed catalog with an empty cache."""
        return replace(self, **fields, _settled={}, _remembered=OrderedDict())

    @cached_property
    def sorted_tools(self) -> tuple[CatalogTool, ...]:
        return tuple(sorted(self.tools.values(), key=lambda tool: tool.name.lower()))
