"""`/agents/`: the list of agents with their state and what each spent today."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from django.http import HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from tools.accounts.user_permissions import may, require
from tools.errors import NotFound
from tools.limits.periods import midnight
from tools.models import Agent, Execution, Token
from tools.policy.license_gates import tier_now
from tools.shapes import money
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.results import page_or_results
from tools.usage.figures import PAID

LIST = "agents/agents.html"
PAGE_SIZE = 25
STATES = (("", "All"), ("active", "Active"), ("suspended", "Suspended"))
MOST_GROUPS = 6  # named in a row


@dataclass(frozen=True)
class AgentRow:
    """An agent in the list. Fields that the user may not see are None."""

    agent: Agent
    groups: list[str]
    more_groups: int
    tokens: int | None
    last_call: datetime | None
    spent: str | None


@require_safe
@page
def agent_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_agent")
    search = _search(request.GET)
    found = Paginator(_found(request, search), PAGE_SIZE).get_page(request.GET.get("page"))
    snapshot = snapshot_of(request)
    context = {
        "search": search,
        "states": STATES,
        "page": found,
        "rows": _rows(request, found),
        "links": _links(search, found),
        "tier": tier_now(snapshot).name,
        "time_zone": snapshot.time_zone.key,
        "sees_tokens": may(request.caller, "view_token"),
        "sees_calls": may(request.caller, "view_execution"),
        "makes": may(request.caller, "add_agent"),
    }
    return page_or_results(request, LIST, context, here=address(search, found.number))


def find_agent(request: PageRequest, slug: str) -> Agent:
    """An agent of the user's organization. Raises `NotFound`."""
    rows = Agent.objects.filter(organization_id=request.caller.organization_id)
    clean = slug[:63]
    found = rows.filter(slug=clean).select_related("service_account", "organization").first()
    if found is None:
        raise NotFound(f"There is no agent {clean!r}.", code="agent_not_found")
    return found


def address(search: dict[str, str], number: int = 1) -> str:
    wanted = search | {"page": str(number) if number > 1 else ""}
    query = {name: value for name, value in wanted.items() if value}
    return reverse("agents") + (f"?{urlencode(query)}" if query else "")


def _search(query: QueryDict) -> dict[str, str]:
    given = {name: query.get(name, "").strip()[:63] for name in ("q", "state")}
    return given | {"state": given["state"] if given["state"] in dict(STATES) else ""}


def _found(request: PageRequest, search: dict[str, str]) -> QuerySet[Agent]:
    rows = Agent.objects.filter(organization_id=request.caller.organization_id)
    if search["q"]:
        rows = rows.filter(slug__icontains=search["q"]) | rows.filter(
            description__icontains=search["q"]
        )
    if search["state"]:
        rows = rows.filter(active=search["state"] == "active")
    return rows.order_by("slug")


def _rows(request: PageRequest, found: Page[Agent]) -> list[AgentRow]:
    """Uses at most three queries for any number of rows."""
    last = Execution.objects.filter(user=OuterRef("service_account")).order_by("-created_at")
    rows = Agent.objects.filter(pk__in=[agent.pk for agent in found]).order_by("slug")
    calls = may(request.caller, "view_execution")
    if calls:
        rows = rows.annotate(last_call=Subquery(last.values("created_at")[:1]))
    agents = list(rows.select_related("service_account"))
    accounts = [agent.service_account_id for agent in agents]
    tokens = _tokens(accounts) if may(request.caller, "view_token") else None
    spent = _spent(request, accounts) if calls else None
    return [_row(agent, tokens, spent) for agent in agents]


def _row(agent: Agent, tokens: dict[Any, int] | None, spent: dict[Any, Decimal] | None) -> AgentRow:
    groups, account = agent.service_account.granted_groups, agent.service_account_id
    return AgentRow(
        agent,
        groups[:MOST_GROUPS],
        max(0, len(groups) - MOST_GROUPS),
        None if tokens is None else tokens.get(account, 0),
        getattr(agent, "last_call", None),
        None if spent is None else money(spent.get(account, Decimal(0))),
    )


def _tokens(accounts: list[Any]) -> dict[Any, int]:
    usable = Token.objects.usable(timezone.now()).filter(user__in=accounts).order_by()
    return dict(usable.values_list("user").annotate(Count("pk")))


def _spent(request: PageRequest, accounts: list[Any]) -> dict[Any, Decimal]:
    """Costs since midnight in the organization's time zone."""
    zone = snapshot_of(request).time_zone
    begun = midnight(timezone.now().astimezone(zone).date(), zone)
    rows = Execution.objects.filter(PAID, user__in=accounts, created_at__gte=begun).order_by()
    return dict(rows.values_list("user").annotate(Sum("cost")))


def _links(search: dict[str, str], found: Page[Agent]) -> dict[str, str]:
    return {
        "previous": address(search, found.number - 1) if found.has_previous() else "",
        "next": address(search, found.number + 1) if found.has_next() else "",
    }
