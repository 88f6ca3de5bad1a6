"""Reads the grants of many agents with as many queries as for one agent."""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any
from uuid import UUID

from tools.accounts.grants.grant_actions import AGENT, PEOPLE, PERSON
from tools.accounts.grants.grants import EXECUTE, EXECUTE_GROUP
from tools.accounts.user_permissions import may, require
from tools.definitions.callers import Caller
from tools.definitions.texts import names
from tools.definitions.values import strict_json
from tools.models import Agent, ToolGroupUserObjectPermission, ToolUserObjectPermission, User
from tools.models.grant_rows import GrantRow, Sought, grant_rows

NamesByAgent = dict[UUID, list[str]]


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


_VIEW_PERMISSIONS = {AGENT: "view_agent", PERSON: "view_user", PEOPLE: "view_user"}


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


_LONGEST = 2_000


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
