"""Reads the grants of many agents with as many queries as for one agent."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any
from uuid import UUID

from tools.accounts.grants.grants import EXECUTE, EXECUTE_GROUP
from tools.definitions.texts import names
from tools.models import Agent, ToolGroupUserObjectPermission, ToolUserObjectPermission, User

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
