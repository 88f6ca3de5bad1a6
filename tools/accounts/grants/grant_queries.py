"""Reads direct grants: of one holder, of many agents with as many queries as for one, and as lists
for people who may see them, each grant with an identifier for URLs.
"""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group
from guardian.shortcuts import get_objects_for_group, get_objects_for_user

from tools.accounts.grants.grants import EXECUTE, EXECUTE_GROUP
from tools.accounts.user_permissions import may, require
from tools.definitions.callers import Caller
from tools.definitions.texts import names
from tools.definitions.values import strict_json
from tools.errors import Malformed, NotFound
from tools.models import (
    Agent,
    Organization,
    Tool,
    ToolGroup,
    ToolGroupUserObjectPermission,
    ToolUserObjectPermission,
    User,
)
from tools.models.permission import GrantRow, Sought, grant_rows

AGENT, PERSON, PEOPLE = "agent", "user", "people_group"
SUBJECTS = {AGENT: "change_agent", PERSON: "change_user", PEOPLE: "change_user"}
# The kinds as request bodies name them, and as list rows do.
KINDS = {
    "tools": "tool",
    "tool_groups": "tool_group",
    "groups": "requestable_group",
    "permissions": "permission",
}
BODY_KINDS = {row: body for body, row in KINDS.items()}
GrantNames = Mapping[str, Iterable[str]]
_COLUMNS = {"groups": "granted_groups", "permissions": "granted_permissions"}
_EVERY_TOOL = {"codename": EXECUTE, "content_type__app_label": "tools"}
NamesByAgent = dict[UUID, list[str]]
_VIEW_PERMISSIONS = {AGENT: "view_agent", PERSON: "view_user", PEOPLE: "view_user"}
_LONGEST = 2_000


@dataclass(frozen=True)
class GrantHolder:
    """The holder: an account or a (people's) group, by its name in the organization."""

    kind: str
    name: str
    holder: User | Group
    organization: Organization

    @property
    def account(self) -> User:
        if not isinstance(self.holder, User):
            raise Malformed(
                "A group of people holds tools and tool groups only; which groups its members may "
                "request, and their permissions, are granted to each of them.",
                code="not_for_people_groups",
            )
        return self.holder

    @property
    def evidence(self) -> str:
        """As the record names it; an agent by its slug alone, as everywhere."""
        return self.name if self.kind == AGENT else f"{self.kind}:{self.name}"


def holder_of_agent(agent: Agent) -> GrantHolder:
    return GrantHolder(AGENT, agent.slug, agent.service_account, agent.organization)


def direct_grants(subject: GrantHolder, kinds: Iterable[str] = KINDS) -> dict[str, set[str]]:
    """The direct grants of the subject, by kind."""
    return {what: _grants_of_kind(subject, what) for what in kinds}


def granted_tools(agent: Agent) -> list[str]:
    """The names of the tools an agent may execute by themselves; `["*"]` for all."""
    held = _grants_of_kind(holder_of_agent(agent), "tools")
    return [names.WILDCARD] if names.WILDCARD in held else sorted(held)


def granted_tool_groups(agent: Agent) -> list[str]:
    return sorted(_grants_of_kind(holder_of_agent(agent), "tool_groups"))


def find_holder(organization: Organization, kind: str, name: str) -> GrantHolder:
    """Raises `NotFound`, also for another organization's account."""
    holder: User | Group | None
    if kind == PEOPLE:
        holder = Group.objects.filter(name=name).first()
    else:
        accounts = User.objects.filter(organization=organization)
        mine = {"agent__slug": name} if kind == AGENT else {"username": name}
        holder = accounts.filter(is_service_account=kind == AGENT, **mine).first()
    if holder is None:
        word = kind.replace("_", " ")
        raise NotFound(f"There is no {word} {name[:150]!r}.", code=f"{kind}_not_found")
    return GrantHolder(kind, name, holder, organization)


def granted_tools_and_groups(agents: Collection[Agent]) -> tuple[NamesByAgent, NamesByAgent]:
    """By the agent: the names of the tools it may execute by themselves, `["*"]` for all, and of
    the tool groups."""
    accounts = {agent.service_account_id: agent for agent in agents}
    everything = {
        accounts[account].pk
        for account in User.user_permissions.through.objects.filter(
            user_id__in=accounts,
            permission__codename=EXECUTE,
            permission__content_type__app_label="tools",
        ).values_list("user_id", flat=True)
    }
    there = ToolUserObjectPermission.objects.filter(content_object__deleted_at=None)
    tools = _direct_grants(accounts, there, EXECUTE)
    groups = _direct_grants(accounts, ToolGroupUserObjectPermission.objects.all(), EXECUTE_GROUP)
    return (
        {
            agent.pk: [names.WILDCARD] if agent.pk in everything else sorted(tools[agent.pk])
            for agent in agents
        },
        {agent.pk: sorted(groups[agent.pk]) for agent in agents},
    )


def list_grants(
    caller: Caller,
    sought: Sought,
    *,
    most: int,
    beside: GrantRow | None = None,
    before: bool = False,
) -> list[GrantRow]:
    """In their order; those right after the row `beside`, or right before it. Grants of agents need
    permission to view agents, those of people and their groups permission to view people; raises
    `Forbidden` for a caller with neither."""
    kinds = [kind for kind, permission in _VIEW_PERMISSIONS.items() if may(caller, permission)]
    require(caller, _VIEW_PERMISSIONS[kinds[0] if kinds else AGENT])
    seen = sought._replace(subject_kinds=kinds)
    return grant_rows(caller.organization_id, seen, most=most, beside=beside, before=before)


def grant_id(row: GrantRow) -> str:
    return base64.urlsafe_b64encode(json.dumps(row).encode()).decode().rstrip("=")


def read_grant_id(text: str) -> GrantRow | None:
    """The grant it names, held or not; None for an id of another form."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        parts = strict_json.parse(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, UnicodeError, strict_json.BadJson):
        return None
    named = isinstance(parts, list) and len(parts) == len(GrantRow._fields)
    if len(text) > _LONGEST or not named or not all(isinstance(part, str) for part in parts):
        return None
    return GrantRow(*parts)


def _grants_of_kind(subject: GrantHolder, what: str) -> set[str]:
    if what in _COLUMNS:
        if not isinstance(subject.holder, User):
            return set()
        column = _COLUMNS[what]
        return set(User.objects.values_list(column, flat=True).get(pk=subject.holder.pk))
    if what == "tool_groups":
        return _granted_names(subject, EXECUTE_GROUP, ToolGroup.objects.all())
    every = (
        {names.WILDCARD} if _model_permissions(subject).filter(**_EVERY_TOOL).exists() else set()
    )
    return every | _granted_names(subject, EXECUTE, Tool.objects.present())


def _granted_names(subject: GrantHolder, codename: str, rows: Any) -> set[str]:
    here, name = rows.filter(organization=subject.organization), f"tools.{codename}"
    if isinstance(subject.holder, User):
        found = get_objects_for_user(
            subject.holder, name, here, use_groups=False, with_superuser=False,
            accept_global_perms=False,
        )  # fmt: skip
    else:
        found = get_objects_for_group(subject.holder, name, here, accept_global_perms=False)
    return set(found.values_list("name", flat=True))


def _model_permissions(subject: GrantHolder) -> Any:
    holder = subject.holder
    return holder.user_permissions if isinstance(holder, User) else holder.permissions


def _direct_grants(accounts: dict[UUID, Agent], rows: Any, codename: str) -> dict[UUID, set[str]]:
    found: dict[UUID, set[str]] = defaultdict(set)
    held = rows.filter(user_id__in=accounts, permission__codename=codename).values_list(
        "user_id", "content_object__organization_id", "content_object__name"
    )
    for account, organization, name in held:
        agent = accounts[account]
        if agent.organization_id == organization:
            found[agent.pk].add(name)
    return found
