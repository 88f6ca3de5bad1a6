"""Django admin of agents, their grants and their tokens."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from tools.accounts.account_actions import change_agent, create_agent, revoke_token
from tools.accounts.grants.grant_actions import granted_tool_groups, granted_tools
from tools.admin.base import ActionForm, Guarded, LinesField, ReadOnly, actor, giver
from tools.definitions.callers import Caller
from tools.models import Agent, Allowance, AllowanceUse, Token
from tools.web.field_actions import GRANTS, change_agent_fields

PLAIN = ("description", "strict", "active", "max_in_flight")


class AgentForm(ActionForm):
    giver: Caller
    groups = LinesField(help_text="Tool groups it may request, one a line; * is all.")
    tools = LinesField(help_text="The tools it may execute among those, one a line; * is all.")
    tool_groups = LinesField(help_text="Groups whose every tool it may execute, one a line.")
    permissions = LinesField(help_text="Permissions that tools require, one a line; * is all.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            self.initial.update(groups=["default"], tools=["*"], tool_groups=[], permissions=[])
        else:
            self.initial.update(_granted(self.instance))

    def act(self, data: dict[str, Any]) -> Agent:
        if self.instance._state.adding:
            given = {name: data[name] for name in ("slug", "description", "strict", *GRANTS)}
            return create_agent(organization=self.home, by=self.by, giver=self.giver, **given)
        wanted = (*PLAIN, *GRANTS)
        changes = {name: data[name] for name in wanted if name in self.changed_data}
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


@admin.register(Agent)
class AgentAdmin(Guarded):
    form = AgentForm
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

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        made = super().get_form(request, obj, change, **options)
        made.giver = giver(request, obj.organization if obj else None)
        return made

    def groups(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["groups"])

    def tools(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["tools"])

    def tool_groups(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["tool_groups"])

    def permissions(self, agent: Agent) -> str:
        return ", ".join(_granted(agent)["permissions"])

    @admin.action(description="Suspend the selected agents", permissions=["change"])
    def suspend(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        self._set_active(request, queryset, active=False)

    @admin.action(description="Let the selected agents in again", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        self._set_active(request, queryset, active=True)

    def _set_active(self, request: HttpRequest, agents: QuerySet[Agent], *, active: bool) -> None:
        for agent in agents:
            by = actor(request, agent.organization)
            change_agent(agent=agent, by=by, active=active)


@admin.register(Token)
class TokenAdmin(ReadOnly):
    """Tokens are not created here: the text of a token is shown once, by `manage.py create_agent`
    or the API, while an admin page stays in a browser's history and on a screen."""

    place = "user__organization"
    list_display = (
        "__str__", "user", "label", "scopes", "expires_at", "last_used_at", "revoked_at",
    )  # fmt: skip
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), "expires_at", "last_used_at")
    list_select_related = ("user",)
    search_fields = ("public_id", "label", "user__username")
    ordering = ("-created_at",)
    fields = (
        "public_id", "user", "label", "scopes", "groups", "tools", "created_at",
        "created_by", "expires_at", "last_used_at", "revoked_at",
    )  # fmt: skip
    actions = ("revoke",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("tools.change_token"))

    @admin.action(description="Revoke the selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        for token in queryset.select_related("user__organization"):
            revoke_token(token=token, by=actor(request, token.user.organization))
        messages.success(request, "They are refused from the next request on.")


@admin.register(Allowance)
class AllowanceAdmin(ReadOnly):
    list_display = ("agent", "tool_name", "kind", "period", "amount", "organization")
    list_filter = ("kind", "period")
    list_select_related = ("agent", "organization")
    search_fields = ("agent__slug", "tool_name")


@admin.register(AllowanceUse)
class AllowanceUseAdmin(ReadOnly):
    place = "allowance__organization"
    list_display = ("allowance", "starts_on", "used", "held", "alerted_percent")
    list_filter = ("allowance__kind", "allowance__period", "starts_on")
    search_fields = ("allowance__agent__slug", "allowance__tool_name")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AllowanceUse]:
        return super().get_queryset(request).select_related("allowance__agent")
