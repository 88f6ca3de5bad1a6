"""`/agents/<slug>/`: an agent's grants, tools, usage, tokens and recent calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from tools.accounts.grants.grant_actions import AGENT
from tools.accounts.grants.grant_ids import grant_id, read_grant_id
from tools.accounts.grants.granted import granted
from tools.accounts.impersonation import agents_for
from tools.accounts.user_permissions import may, require
from tools.definitions.results import REFUSED
from tools.errors import ToolcribError
from tools.execution import session_actions
from tools.execution.agent_calls import open_calls
from tools.execution.reading import readable
from tools.limits import allowances
from tools.limits.allowances import AllowanceStatus
from tools.models import Agent, Session, Token
from tools.models.agent import Kind
from tools.models.permission import GrantRow, Sought
from tools.shapes import money
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.agents.agents import find_agent
from tools.ui.executions.executions import BULKY
from tools.ui.gauges import Gauge, gauge
from tools.ui.inputs import FormInput
from tools.ui.shown import milliseconds

PAGE = "agents/agent.html"
MOST_GRANTS = 60
MOST_TOKENS = 50
MOST_SESSIONS = 20
MOST_CALLS = 8
LOOKED_AT = 500  # of the last calls are searched for refused ones
MOST_OFFERED = 500  # names of groups that a form offers
WORDS = {
    "requestable_group": "Groups it may ask for",
    "tool_group": "Groups whose every tool it may execute",
    "tool": "Tools it may execute",
    "permission": "Permissions that tools require",
}


@dataclass(frozen=True)
class AgentGrants:
    """The grants of one kind on this page."""

    kind: str
    word: str
    names: list[str]


@dataclass(frozen=True)
class AgentLimitUse:
    """A quota or a budget with its usage in the current period."""

    what: str
    standing: AllowanceStatus
    gauge: Gauge
    says: str


@require_safe
@page
def agent_page(request: PageRequest, slug: str) -> HttpResponse:
    require(request.caller, "view_agent")
    return show(request, find_agent(request, slug))


def show(
    request: PageRequest, agent: Agent, *, refusal: ToolcribError | None = None, **more: Any
) -> HttpResponse:
    """The agent's page; after a form, with the refusal or the new token."""
    context = {
        "agent": agent,
        "refusal": refusal,
        **_holds(request, agent),
        "bounds": bounds_of(allowances.allowances_of(agent)),
        **_tokens(request, agent),
        **_sessions(request, agent),
        **_calls(request, agent),
        "acts_as": agent.active and agents_for(request.caller.user_id).filter(pk=agent.pk).exists(),
        "may_change": may(request.caller, "change_agent"),
        "explains": may(request.caller, "view_tool"),
        **more,
    }
    return render(request, PAGE, context, status=refusal.http_status if refusal else 200)


def token_inputs() -> list[FormInput]:
    return [
        FormInput("label", "Name", help="What holds it: a machine, a program.", required=True),
        FormInput(
            "days", "Days until it ends", help="At most 365.", value=str(settings.TOKEN_DAYS)
        ),
        FormInput(
            "groups", "Only these groups", help="Commas between them; empty is all of its own."
        ),
        FormInput(
            "tools", "Only these tools", help="Commas between them; empty is all of its own."
        ),
    ]


def _holds(request: PageRequest, agent: Agent) -> dict[str, Any]:
    beside = read_grant_id(request.GET.get("after", ""))
    sought = Sought([], AGENT, agent.slug)
    rows = granted(request.caller, sought, most=MOST_GRANTS + 1, beside=beside)
    shown = rows[:MOST_GRANTS]
    more = len(rows) > MOST_GRANTS
    groups = sorted(snapshot_of(request).groups)[:MOST_OFFERED]
    return {
        "grants": list(_by_kind(shown)),
        "grant_kinds": WORDS.items(),
        "grants_after": grant_id(shown[-1]) if more else "",
        "grants_begun": beside is not None,
        "known_groups": groups,
    }


def _by_kind(rows: Iterable[GrantRow]) -> Iterable[AgentGrants]:
    found: dict[str, list[str]] = {kind: [] for kind in WORDS}
    for row in rows:
        found[row.kind].append(row.name)
    return (AgentGrants(kind, WORDS[kind], names) for kind, names in found.items() if names)


def bounds_of(standings: list[AllowanceStatus]) -> list[AgentLimitUse]:
    return [_bound(one) for one in standings]


def _bound(one: AllowanceStatus) -> AgentLimitUse:
    left = max(one.amount - one.used - one.held, type(one.amount)(0))
    held = f", {money(one.held)} held by open calls" if one.held else ""
    says = f"{money(one.used)} of {money(one.amount)} used{held}; {money(left)} left"
    what = "Calls" if one.kind == Kind.CALLS else "Cost"
    whose = f" of {one.tool_name}" if one.tool_name else " of all tools"
    return AgentLimitUse(
        f"{what}{whose} a {one.period}", one, gauge(one.used, one.amount, says, one.held), says
    )


def _tokens(request: PageRequest, agent: Agent) -> dict[str, Any]:
    """Only valid tokens."""
    if not may(request.caller, "view_token"):
        return {"tokens": None}
    rows = Token.objects.filter(user=agent.service_account_id).usable(timezone.now())
    found = list(rows[: MOST_TOKENS + 1])
    return {
        "tokens": found[:MOST_TOKENS],
        "more_tokens": len(found) > MOST_TOKENS,
        "token_inputs": token_inputs(),
        "token_scopes": ["read", "execute"],
        "issues": may(request.caller, "add_token"),
        "revokes": may(request.caller, "delete_token"),
    }


def _sessions(request: PageRequest, agent: Agent) -> dict[str, Any]:
    if not may(request.caller, "view_session"):
        return {"sessions": None}
    rows: QuerySet[Session] = session_actions.readable(request.caller).open()
    found = list(rows.filter(user=agent.service_account_id)[: MOST_SESSIONS + 1])
    return {"sessions": found[:MOST_SESSIONS], "more_sessions": len(found) > MOST_SESSIONS}


def _calls(request: PageRequest, agent: Agent) -> dict[str, Any]:
    if not may(request.caller, "view_execution"):
        return {"calls": None}
    mine = readable(request.caller).filter(user=agent.service_account_id)
    rows = list(mine.defer(*BULKY).order_by("-created_at")[:LOOKED_AT])
    for row in rows:
        row.shown_duration = milliseconds(row.duration_ms)  # type: ignore[attr-defined]
    refused = [row for row in rows if row.status in REFUSED]
    return {
        "calls": rows[:MOST_CALLS],
        "refused": refused[:MOST_CALLS],
        "looked_at": len(rows),
        "open_calls": open_calls(agent).count() if agent.active else 0,
    }
