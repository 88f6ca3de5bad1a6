"""The caller of a request: made once per request from one row, and read by every gate."""

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class CallerKind(StrEnum):
    AGENT = "agent"
    PERSON = "person"
    SYSTEM = "system"


class Scope(StrEnum):
    """What a token may be used for; an agent's token never has more rights than the agent."""

    READ = "read"
    EXECUTE = "execute"
    CATALOG = "catalog"  # tools, chains, groups, schemas, servers, services, channels, imports
    AGENTS = "agents"  # agents, their tokens, grants, and the calls and sessions of others
    AUDIT = "audit"  # erasures, alerts
    ORGANIZATION = "organization"  # organizations, tiers, people, signing keys, egress credentials
    MANAGE = "manage"  # all four


MANAGING_SCOPES = frozenset({Scope.CATALOG, Scope.AGENTS, Scope.AUDIT, Scope.ORGANIZATION})


@dataclass(frozen=True, slots=True)
class Maker:
    """The person who makes a call in the playground."""

    id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Caller:
    """An agent or a person, in one organization."""

    kind: CallerKind
    name: str
    organization_id: UUID
    organization: str
    revision: int
    user_id: UUID
    agent_id: UUID | None = None
    token_id: UUID | None = None
    granted_groups: frozenset[str] = frozenset()
    granted_permissions: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    token_tools: frozenset[str] | None = None  # the only ones that its token covers; None is all
    token_groups: frozenset[str] | None = None  # likewise
    is_superuser: bool = False
    strict: bool = False
    active: bool = True
    source_ip: str = field(default="", compare=False)
    maker: Maker | None = field(default=None, compare=False)  # in the playground: the person

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def narrowed(self) -> bool:
        """Whether the token is narrowed to some groups or tools."""
        return self.token_tools is not None or self.token_groups is not None

    def allows(self, scope: str) -> bool:
        """Whether the token has the scope; `manage` includes every managing scope, and all of these
        together are `manage`."""
        if scope == Scope.MANAGE:
            return scope in self.scopes or self.scopes >= MANAGING_SCOPES
        return scope in self.scopes or (scope in MANAGING_SCOPES and Scope.MANAGE in self.scopes)
