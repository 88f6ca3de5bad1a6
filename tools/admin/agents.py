"""Django admin of agents and their grants."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tools.accounts.account_actions import change_agent, create_agent
from tools.accounts.grants.grant_queries import granted_tool_groups, granted_tools
from tools.admin.base import AdminActionForm, Guarded, actor, row_action
from tools.models import Agent, Organization
from tools.web.field_actions import GRANTS, change_agent_fields
from tools.web.form_fields import LinesField


class AgentAdminForm(AdminActionForm):
    groups = LinesField(
        initial=["default"], help_text="Tool groups it may request, one a line; * is all."
    )
    tools = LinesField(
        initial=["*"], help_text="The tools it may execute among those, one a line; * is all."
    )
    tool_groups = LinesField(help_text="Groups whose every tool it may execute, one a line.")
    permissions = LinesField(help_text="Permissions that tools require, one a line; * is all.")

    def stored_values(self) -> dict[str, Any]:
        return super().stored_values() | _granted(self.instance)

    def act(self, changes: dict[str, Any]) -> Agent:
        if self.is_new:
            return create_agent(organization=self.home, by=self.by, giver=self.giver, **changes)
        change_agent_fields(agent=self.instance, by=self.by, giver=self.giver, changes=changes)
        return Agent.objects.get(pk=self.instance.pk)


def _granted(agent: Agent) -> dict[str, list[str]]:
    account = agent.service_account
    return {
        "groups": account.granted_groups,
        "tools": granted_tools(agent),
        "tool_groups": granted_tool_groups(agent),
        "permissions": account.granted_permissions,
    }


def _switch(*, active: bool) -> Callable[[HttpRequest, Agent, Organization], bool]:
    def switch(request: HttpRequest, agent: Agent, place: Organization) -> bool:
        was = agent.active
        change_agent(agent=agent, by=actor(request, place), active=active)
        return was != active

    return switch


@admin.register(Agent)
class AgentAdmin(Guarded):
    form = AgentAdminForm
    list_display = ("slug", "organization", "active", "strict", "created_at")
    list_filter = ("active", "strict")
    list_select_related = ("organization",)
    search_fields = ("slug", "description")
    actions = ("suspend", "resume")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (
            "slug",
            "description",
            *(("active", "max_in_flight") if obj else ()),
            "strict",
            *GRANTS,
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("slug",) if obj else ()

    def groups(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["groups"])

    def tools(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["tools"])

    def tool_groups(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["tool_groups"])

    def permissions(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["permissions"])

    suspend = row_action("Suspend the selected agents", "Suspended", _switch(active=False))
    resume = row_action("Let the selected agents in again", "Let in again", _switch(active=True))
