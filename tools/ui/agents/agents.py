"""`/agents/`: the list of agents, and the forms that create and change an agent."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from tools.accounts import account_actions
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.bounds import MOST
from tools.catalog.tiers import tier_now
from tools.errors import Malformed, NotFound, ToolcribError
from tools.limits.allowances import midnight
from tools.models import Agent, Execution, Token
from tools.shapes.scalars import money
from tools.ui.access import PageRequest, page, page_or_results, snapshot_of
from tools.ui.inputs import FormInput, Widget, form_values, split_names
from tools.usage.usage_rollups import PAID
from tools.web.reauthentication import Proof, proof

LIST = "agents/agents.html"
PAGE_SIZE = 25
STATES = (("", "All"), ("active", "Active"), ("suspended", "Suspended"))
MOST_GROUPS = 6  # named in a row
FORM_PAGE = "agents/agent_form.html"
LONGEST = {"slug": 63, "description": 500}
_LISTS = ("groups", "tools", "tool_groups", "permissions")
_MOST_NAMES = 200


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
    search = _read_filters(request.GET)
    found = Paginator(_filter_agents(request, search), PAGE_SIZE).get_page(request.GET.get("page"))
    snapshot = snapshot_of(request)
    context = {
        "search": search,
        "states": STATES,
        "page": found,
        "rows": _agent_rows(request, found),
        "links": _page_links(search, found),
        "tier": tier_now(snapshot).name,
        "time_zone": snapshot.time_zone.key,
        "sees_tokens": may(request.caller, "view_token"),
        "sees_calls": may(request.caller, "view_execution"),
        "makes": may(request.caller, "add_agent"),
    }
    return page_or_results(request, LIST, context, here=list_address(search, found.number))


def find_agent(request: PageRequest, slug: str) -> Agent:
    """An agent of the user's organization. Raises `NotFound`."""
    rows = Agent.objects.filter(organization_id=request.caller.organization_id)
    clean = slug[:63]
    found = rows.filter(slug=clean).select_related("service_account", "organization").first()
    if found is None:
        raise NotFound(f"There is no agent {clean!r}.", code="agent_not_found")
    return found


def list_address(search: dict[str, str], number: int = 1) -> str:
    wanted = search | {"page": str(number) if number > 1 else ""}
    query = {name: value for name, value in wanted.items() if value}
    return reverse("agents") + (f"?{urlencode(query)}" if query else "")


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def create_agent(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_agent")
    inputs = _create_inputs()
    if request.method != "POST":
        return _render_form(request, inputs)
    given = _fill_inputs(inputs, request)
    _check_lengths(inputs)
    if any(one.errors for one in inputs):
        return _render_form(request, inputs, error=Malformed("See the marked fields."))
    try:
        agent = account_actions.create_agent(
            organization=request.user.organization,
            by=actor_of(request.caller),
            giver=request.caller,
            **_request_body(given),
        )
    except ToolcribError as error:
        return _render_form(request, inputs, error=error)
    messages.success(request, f"{agent.slug} is made. Give it a token, and it can call.")
    return redirect("agent", slug=agent.slug)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_agent(request: PageRequest, slug: str) -> HttpResponseBase:
    require(request.caller, "change_agent")
    agent = find_agent(request, slug)
    inputs = _change_inputs(agent)
    if request.method != "POST":
        return _render_form(request, inputs, agent)
    given = _fill_inputs(inputs, request)
    _check_lengths(inputs)
    most = _parse_limit(given["max_in_flight"], inputs[-1])
    if any(one.errors for one in inputs):
        return _render_form(request, inputs, agent, Malformed("See the marked fields."))
    account_actions.change_agent(
        agent=agent,
        by=actor_of(request.caller),
        description=given["description"],
        strict=bool(given["strict"]),
        max_in_flight=most,
    )
    messages.success(request, f"{agent.slug} is changed.")
    return redirect("agent", slug=agent.slug)


def _read_filters(query: QueryDict) -> dict[str, str]:
    given = {name: query.get(name, "").strip()[:63] for name in ("q", "state")}
    return given | {"state": given["state"] if given["state"] in dict(STATES) else ""}


def _filter_agents(request: PageRequest, search: dict[str, str]) -> QuerySet[Agent]:
    rows = Agent.objects.filter(organization_id=request.caller.organization_id)
    if search["q"]:
        rows = rows.filter(slug__icontains=search["q"]) | rows.filter(
            description__icontains=search["q"]
        )
    if search["state"]:
        rows = rows.filter(active=search["state"] == "active")
    return rows.order_by("slug")


def _agent_rows(request: PageRequest, found: Page[Agent]) -> list[AgentRow]:
    """Uses at most three queries for any number of rows."""
    last = Execution.objects.filter(user=OuterRef("service_account")).order_by("-created_at")
    rows = Agent.objects.filter(pk__in=[agent.pk for agent in found]).order_by("slug")
    calls = may(request.caller, "view_execution")
    if calls:
        rows = rows.annotate(last_call=Subquery(last.values("created_at")[:1]))
    agents = list(rows.select_related("service_account"))
    accounts = [agent.service_account_id for agent in agents]
    tokens = _count_tokens(accounts) if may(request.caller, "view_token") else None
    spent = _costs_today(request, accounts) if calls else None
    return [_agent_row(agent, tokens, spent) for agent in agents]


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


def _page_links(search: dict[str, str], found: Page[Agent]) -> dict[str, str]:
    return {
        "previous": list_address(search, found.number - 1) if found.has_previous() else "",
        "next": list_address(search, found.number + 1) if found.has_next() else "",
    }


def _create_inputs() -> list[FormInput]:
    commas = "Commas between them."
    return [
        FormInput("slug", "Name", required=True,
              help="Lower-case letters, digits and hyphens. It stays: evidence names it."),
        FormInput("description", "What it is for"),
        FormInput("groups", "Groups it may ask for", value="default",
                  help=f"{commas} * is every one."),
        FormInput("tools", "Tools it may execute",
                  help=f"{commas} Where this and the next are empty: "
              "every tool of its groups."),
        FormInput("tool_groups", "Groups whose every tool it may execute", help=commas),
        FormInput("permissions", "Permissions that tools require", help=commas),
        _strict_input(""),
    ]  # fmt: skip


def _change_inputs(agent: Agent) -> list[FormInput]:
    most = "" if agent.max_in_flight is None else str(agent.max_in_flight)
    return [
        FormInput("description", "What it is for", value=agent.description),
        _strict_input("yes" if agent.strict else ""),
        FormInput("max_in_flight", "Calls that may be open at once", value=most,
              help="Empty is no limit."),
    ]  # fmt: skip


def _strict_input(value: str) -> FormInput:
    return FormInput(
        "strict", "Refuse names of groups that nobody knows", Widget.CHECK, value=value,
        help="Else they are ignored, with a warning.",
    )  # fmt: skip


def _fill_inputs(inputs: list[FormInput], request: PageRequest) -> dict[str, str]:
    """The submitted values, which stay in the form."""
    data = form_values(request.POST)
    for one in inputs:
        one.value = data.get(one.key, "").strip()[:20_000]
    return {one.key: one.value for one in inputs}


def _request_body(given: Mapping[str, str]) -> dict[str, Any]:
    """The values in the API's format: empty ones are left to their default, except groups."""
    lists = {key: split_names(given[key]) or None for key in _LISTS}
    return {
        "slug": given["slug"],
        "description": given["description"],
        "strict": bool(given["strict"]),
        **lists,
        "groups": split_names(given["groups"]),
    }


def _check_lengths(inputs: list[FormInput]) -> None:
    for one in inputs:
        most = LONGEST.get(one.key)
        if most and len(one.value) > most:
            one.errors.append(f"At most {most} characters.")
        names = split_names(one.value) if one.key in _LISTS else []
        if len(names) > _MOST_NAMES or any(len(name) > 100 for name in names):
            one.errors.append(f"At most {_MOST_NAMES} names of 100 characters.")


def _parse_limit(text: str, at: FormInput) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= MOST:
        return int(text)
    at.errors.append(f"A whole number from 1 to {MOST:,}, or nothing.")
    return None


def _render_form(
    request: PageRequest,
    inputs: list[FormInput],
    agent: Agent | None = None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    flawed = any(one.errors for one in inputs)
    flaws = [] if error is None or flawed else [{"field": "", "message": error.message}]
    context = {"inputs": inputs, "agent": agent, "flaws": flaws, "refused": error is not None}
    return render(request, FORM_PAGE, context, status=error.http_status if error else 200)
