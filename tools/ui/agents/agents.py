"""`/agents/`: the list of agents, and the forms that create and change an agent."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from django.http.response import HttpResponseBase
from django.utils import timezone

from tools.accounts import account_actions
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.catalog.bounds import MOST
from tools.catalog.tiers import tier_now
from tools.errors import NotFound
from tools.limits.allowances import midnight
from tools.models import Agent, Execution, Token
from tools.shapes.scalars import money
from tools.usage.usage_rollups import PAID
from tools.web.form_fields import NamesField
from tools.web.forms import ActionForm
from tools.web.listing import Column, Filters, Listing, choice_field, search_field
from tools.web.pages import PageRequest, form_page, page, snapshot_of
from tools.web.reauthentication import Proof

MOST_GROUPS = 6  # named in a row
FORM_PAGE = "agents/agent_form.html"
COMMAS = "Commas between them."
STRICT = "Refuse names of groups that do not exist"
NOT_STRICT = "Else they are ignored, with a warning."


@dataclass(frozen=True)
class AgentRow:
    """An agent in the list. Fields that the user may not see are None."""

    agent: Agent
    groups: list[str]
    more_groups: int
    tokens: int | None
    last_call: datetime | None
    spent: str | None


class AgentFilters(Filters):
    q = search_field("Name or what it is for")
    state = choice_field("State", [("active", "Active"), ("suspended", "Suspended")])


class AgentListing(Listing):
    view, template, css = "agents", "agents/agents.html", "agents"
    filters, order, place, noun = AgentFilters, "agent", "slug", "agent"

    def build(self) -> None:
        self.sees_tokens = may(self.caller, "view_token")
        self.sees_calls = may(self.caller, "view_execution")
        self.columns = [
            Column("agent", "Agent", lambda row: row.agent.slug, sort="slug"),
            Column("description", "", lambda row: row.agent.description),
            Column("state", "State", lambda row: "active" if row.agent.active else "suspended",
                   sort="active"),
            Column("groups", "May ask for", lambda row: row.agent.service_account.granted_groups),
            Column("created", "", lambda row: row.agent.created_at),
        ]  # fmt: skip
        if self.sees_tokens:
            self.columns.append(Column("tokens", "Tokens", lambda row: row.tokens, css="number"))
        if self.sees_calls:
            self.columns += [
                Column("last_call", "Last call", lambda row: row.last_call, css="number"),
                Column("spent_today", "Spent today", lambda row: row.spent, css="number"),
            ]

    def rows(self) -> QuerySet[Agent]:
        rows = Agent.objects.filter(organization_id=self.caller.organization_id)
        if words := self.values.get("q"):
            rows = rows.filter(slug__icontains=words) | rows.filter(description__icontains=words)
        if state := self.values.get("state"):
            rows = rows.filter(active=state == "active")
        return rows

    def prepare(self, rows: list[Agent]) -> list[AgentRow]:
        return _agent_rows(self.request, rows)

    def context(self) -> dict[str, Any]:
        snapshot = snapshot_of(self.request)
        return {
            "tier": tier_now(snapshot).name,
            "time_zone": snapshot.time_zone.key,
            "makes": may(self.caller, "add_agent"),
        }


@page("view_agent")
def agent_list(request: PageRequest) -> HttpResponseBase:
    return AgentListing(request).respond()


def find_agent(request: PageRequest, slug: str) -> Agent:
    """An agent of the user's organization. Raises `NotFound`."""
    rows = Agent.objects.filter(organization_id=request.caller.organization_id)
    clean = slug[:63]
    found = rows.filter(slug=clean).select_related("service_account", "organization").first()
    if found is None:
        raise NotFound(f"There is no agent {clean!r}.", code="agent_not_found")
    return found


class NewAgentForm(ActionForm):
    slug = forms.CharField(
        label="Name",
        max_length=63,
        help_text="Lower-case letters, digits and hyphens. It stays: evidence names it.",
    )
    description = forms.CharField(label="What it is for", max_length=500, required=False)
    groups = NamesField(
        label="Groups it may ask for", initial="default", help_text=f"{COMMAS} * is every one."
    )
    tools = NamesField(
        label="Tools it may execute",
        none_if_empty=True,
        help_text=f"{COMMAS} Where this and the next are empty: every tool of its groups.",
    )
    tool_groups = NamesField(
        label="Groups whose every tool it may execute", none_if_empty=True, help_text=COMMAS
    )
    permissions = NamesField(
        label="Permissions that tools require", none_if_empty=True, help_text=COMMAS
    )
    strict = forms.BooleanField(label=STRICT, required=False, help_text=NOT_STRICT)

    def act(self, changes: dict[str, Any]) -> Agent:
        caller = self.request.caller
        return account_actions.create_agent(
            organization=self.request.user.organization,
            by=actor_of(caller),
            giver=caller,
            **changes,
        )


class AgentForm(ActionForm):
    row: Agent
    description = forms.CharField(label="What it is for", max_length=500, required=False)
    strict = forms.BooleanField(label=STRICT, required=False, help_text=NOT_STRICT)
    max_in_flight = forms.IntegerField(
        label="Calls that may be open at once",
        required=False,
        min_value=1,
        max_value=MOST,
        widget=forms.TextInput,
        help_text="Empty is no limit.",
    )

    def stored_values(self) -> dict[str, Any]:
        return {name: getattr(self.row, name) for name in self.fields}

    def act(self, changes: dict[str, Any]) -> bool:
        by = actor_of(self.request.caller)
        return account_actions.change_agent(agent=self.row, by=by, **changes)


@form_page(Proof.NEEDED, "add_agent")
def create_agent(request: PageRequest) -> HttpResponseBase:
    form = NewAgentForm(request)
    if not form.save():
        return form.show(FORM_PAGE)
    said = f"{form.result.slug} is created. Give it a token, and it can call."
    return form.redirect(said, "agent", slug=form.result.slug)


@form_page(Proof.NEEDED, "change_agent")
def change_agent(request: PageRequest, slug: str) -> HttpResponseBase:
    agent = find_agent(request, slug)
    form = AgentForm(request, agent)
    if not form.save():
        return form.show(FORM_PAGE, {"agent": agent})
    return form.redirect(f"{agent.slug} is changed.", "agent", slug=agent.slug)


def _agent_rows(request: PageRequest, found: list[Agent]) -> list[AgentRow]:
    """Uses at most three queries for any number of rows."""
    last = Execution.objects.filter(user=OuterRef("service_account")).order_by("-created_at")
    rows = Agent.objects.filter(pk__in=[agent.pk for agent in found])
    calls = may(request.caller, "view_execution")
    if calls:
        rows = rows.annotate(last_call=Subquery(last.values("created_at")[:1]))
    agents = {agent.pk: agent for agent in rows.select_related("service_account")}
    accounts = [agent.service_account_id for agent in agents.values()]
    tokens = _count_tokens(accounts) if may(request.caller, "view_token") else None
    spent = _costs_today(request, accounts) if calls else None
    return [_agent_row(agents[one.pk], tokens, spent) for one in found if one.pk in agents]


def _agent_row(
    agent: Agent, tokens: dict[Any, int] | None, spent: dict[Any, Decimal] | None
) -> AgentRow:
    groups, account = agent.service_account.granted_groups, agent.service_account_id
    return AgentRow(
        agent,
        groups[:MOST_GROUPS],
        max(0, len(groups) - MOST_GROUPS),
        None if tokens is None else tokens.get(account, 0),
        getattr(agent, "last_call", None),
        None if spent is None else money(spent.get(account, Decimal(0))),
    )


def _count_tokens(accounts: list[Any]) -> dict[Any, int]:
    usable = Token.objects.usable(timezone.now()).filter(user__in=accounts).order_by()
    return dict(usable.values_list("user").annotate(Count("pk")))


def _costs_today(request: PageRequest, accounts: list[Any]) -> dict[Any, Decimal]:
    """Costs since midnight in the organization's time zone."""
    zone = snapshot_of(request).time_zone
    begun = midnight(timezone.now().astimezone(zone).date(), zone)
    rows = Execution.objects.filter(PAID, user__in=accounts, created_at__gte=begun).order_by()
    return dict(rows.values_list("user").annotate(Sum("cost")))
