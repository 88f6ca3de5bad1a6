"""`/agents/<slug>/`: an agent's grants, tools, usage, tokens and recent calls, and the changes that
are made on this page: suspend and resume, grant and revoke, tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters

from tools.accounts import account_actions
from tools.accounts.callers import actor_of, impersonable_agents
from tools.accounts.grants import grant_actions
from tools.accounts.grants.grant_queries import (
    AGENT,
    BODY_KINDS,
    grant_id,
    list_grants,
    read_grant_id,
)
from tools.accounts.user_permissions import may, require
from tools.definitions.callers import Scope
from tools.definitions.results import REFUSED
from tools.errors import Malformed, NotFound
from tools.execution.answer import cancel_agent_calls, open_calls_of_agent
from tools.execution.outputs import readable_executions
from tools.limits import allowances
from tools.limits.allowances import AllowanceStatus
from tools.models import Agent, Session, Token
from tools.models.agent import AllowanceKind
from tools.models.permission import GrantRow, Sought
from tools.shapes.scalars import money
from tools.ui.agents.agents import find_agent
from tools.ui.charts import Gauge, gauge
from tools.ui.display import format_duration
from tools.ui.executions.executions import LARGE_FIELDS
from tools.web.form_fields import Checkboxes, NamesField
from tools.web.forms import ActionForm, notify
from tools.web.keyset import count_at_most
from tools.web.one_time import redirect_with_secrets, take_secrets
from tools.web.pages import PageRequest, action_page, page, snapshot_of
from tools.web.reauthentication import Proof
from tools.workflows import session_actions

PAGE = "agents/agent.html"
MOST_GRANTS = 60
MOST_TOKENS = 50
MOST_SESSIONS = 20
MOST_CALLS = 8
REFUSED_WITHIN_DAYS = 30
MOST_OFFERED = 500  # names of groups that a form offers
GRANT_LABELS = {
    "requestable_group": "Groups it may ask for",
    "tool_group": "Groups whose every tool it may execute",
    "tool": "Tools it may execute",
    "permission": "Permissions that tools require",
}
LONGEST_LABEL = 100
MOST_DAYS = 365
LONGEST_REASON = 500
SCOPES = (Scope.READ, Scope.EXECUTE)


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
    status: AllowanceStatus
    gauge: Gauge
    says: str


@page("view_agent")
def agent_page(request: PageRequest, slug: str) -> HttpResponse:
    return render_agent(request, find_agent(request, slug))


def render_agent(
    request: PageRequest,
    agent: Agent,
    *,
    grant: "GrantForm | None" = None,
    token: "AgentTokenForm | None" = None,
) -> HttpResponse:
    """The agent's page; with a form that was refused."""
    shown = take_secrets(request)
    context = {
        "agent": agent,
        "refusal": grant or token,
        "grant_form": grant or GrantForm(request, agent, sent=False),
        "token_form": token or AgentTokenForm(request, agent, sent=False),
        "made": Token.objects.filter(pk=shown["id"]).first() if shown else None,
        "text": shown.get("text", ""),
        **_grants_context(request, agent),
        "bounds": limit_uses(allowances.allowances_of(agent)),
        **_tokens_context(request, agent),
        **_sessions_context(request, agent),
        **_calls_context(request, agent),
        "acts_as": agent.active
        and impersonable_agents(request.caller.user_id).filter(pk=agent.pk).exists(),
        "may_change": may(request.caller, "change_agent"),
        "explains": may(request.caller, "view_tool"),
    }
    return render(request, PAGE, context, status=(grant or token or GrantForm).status)


class _AgentPartForm(ActionForm):
    """A form of the agent's page that adds something to the agent."""

    def __init__(self, request: PageRequest, agent: Agent, *, sent: bool = True) -> None:
        self.agent = agent
        super().__init__(request, sent=sent)


class GrantForm(_AgentPartForm):
    kind = forms.ChoiceField(label="Give", choices=GRANT_LABELS.items())
    names = NamesField(
        label="Names",
        required=True,
        longest=128,
        widget=forms.TextInput({"list": "known-groups"}),
    )

    def act(self, changes: dict[str, Any]) -> bool:
        wanted = {BODY_KINDS[changes["kind"]]: changes["names"]}
        return grant_actions.give_grants(
            giver=self.request.caller, kind=AGENT, name=self.agent.slug, wanted=wanted
        )


class AgentTokenForm(_AgentPartForm):
    label = forms.CharField(
        label="Name",
        max_length=LONGEST_LABEL,
        help_text="What holds it: a machine, a program.",
        error_messages={"required": f"A name of 1 to {LONGEST_LABEL} characters is needed."},
    )
    days = forms.IntegerField(
        label="Days until it ends",
        min_value=1,
        max_value=MOST_DAYS,
        widget=forms.TextInput,
        help_text=f"At most {MOST_DAYS}.",
    )
    groups = NamesField(
        label="Only these groups",
        none_if_empty=True,
        help_text="Commas between them; empty is all of its own.",
    )
    tools = NamesField(
        label="Only these tools",
        none_if_empty=True,
        help_text="Commas between them; empty is all of its own.",
    )
    scope = forms.MultipleChoiceField(
        label="What it may do",
        choices=[(Scope.READ, "Read"), (Scope.EXECUTE, "Call tools")],
        initial=[*SCOPES],
        widget=Checkboxes,
        help_text="It may never do more than you may, since you could use it yourself.",
        error_messages={"required": "Choose at least one thing the token may do."},
    )

    def build(self) -> None:
        self.fields["days"].initial = settings.TOKEN_DAYS

    def act(self, changes: dict[str, Any]) -> tuple[Token, str]:
        return account_actions.create_token(
            user=self.agent.service_account,
            by=actor_of(self.request.caller),
            giver=self.request.caller,
            scopes=changes.pop("scope"),
            **changes,
        )


def limit_uses(standings: list[AllowanceStatus]) -> list[AgentLimitUse]:
    return [_limit_use(one) for one in standings]


@action_page(lambda request, *, active, **_: active, "change_agent")
def set_active(request: PageRequest, slug: str, active: bool) -> HttpResponseBase:
    """A suspended agent is refused from the next request on; open calls are canceled if asked."""
    agent = find_agent(request, slug)
    stops = not active and bool(request.POST.get("stop"))
    if stops:
        require(request.caller, "change_execution")
    reason = request.POST.get("reason", "").strip()[:LONGEST_REASON]
    by = actor_of(request.caller)
    changed = account_actions.change_agent(agent=agent, by=by, active=active, reason=reason)
    stopped = cancel_agent_calls(caller=request.caller, agent=agent) if stops else 0
    if active:
        said = f"{slug} is let in again."
    elif changed:
        ended = f", and {stopped} of its calls ended" if stopped else ""
        said = f"{slug} is suspended: its tokens are refused from now on{ended}."
    else:
        said = f"{slug} was suspended already; {stopped} of its calls ended."
    notify(request, said, changed=changed or bool(stopped))
    return redirect("agent", slug=slug)


@action_page(Proof.NEEDED, "change_agent")
def add_grant(request: PageRequest, slug: str) -> HttpResponseBase:
    agent = find_agent(request, slug)
    form = GrantForm(request, agent)
    if not form.save():
        return render_agent(request, agent, grant=form)
    names = ", ".join(form.cleaned_data["names"])[:200]
    return form.redirect(f"{slug} holds {names}.", "agent", slug=slug)


@action_page(Proof.NOT_NEEDED, "change_agent")
def remove_grant(request: PageRequest, slug: str) -> HttpResponseBase:
    agent, data = find_agent(request, slug), request.POST
    kind, name = data.get("kind", ""), data.get("name", "")[:200]
    if kind not in BODY_KINDS:
        raise Malformed("Say which kind of grant is taken away.")
    grant_actions.revoke_grant(giver=request.caller, row=GrantRow(AGENT, agent.slug, kind, name))
    messages.success(request, f"{name} is taken away from {slug}.")
    return redirect("agent", slug=slug)


@sensitive_post_parameters()
@action_page(Proof.NEEDED)
def issue_token(request: PageRequest, slug: str) -> HttpResponseBase:
    """Issue a token; the page that follows shows it once."""
    for permission in ("add_token", "view_agent"):
        require(request.caller, permission)
    agent = find_agent(request, slug)
    form = AgentTokenForm(request, agent)
    if not form.save():
        return render_agent(request, agent, token=form)
    token, text = form.result
    shown = {"id": str(token.pk), "text": text}
    return redirect_with_secrets(request, shown, "agent", slug=slug)


@action_page(Proof.NOT_NEEDED, "delete_token")
def revoke_token(request: PageRequest, slug: str, token_id: UUID) -> HttpResponseBase:
    agent = find_agent(request, slug)
    token = agent.service_account.tokens.filter(pk=token_id).first()
    if token is None:
        raise NotFound("The agent has no such token.", code="token_not_found")
    changed = account_actions.revoke_token(token=token, by=actor_of(request.caller))
    notify(request, f"{token.label or token} is refused from now on.", changed=changed)
    return redirect("agent", slug=slug)


def _grants_context(request: PageRequest, agent: Agent) -> dict[str, Any]:
    beside = read_grant_id(request.GET.get("after", ""))
    sought = Sought([], AGENT, agent.slug)
    rows = list_grants(request.caller, sought, most=MOST_GRANTS + 1, beside=beside)
    shown = rows[:MOST_GRANTS]
    more = len(rows) > MOST_GRANTS
    groups = sorted(snapshot_of(request).groups)[:MOST_OFFERED]
    return {
        "grants": list(_group_by_kind(shown)),
        "grants_after": grant_id(shown[-1]) if more else "",
        "grants_begun": beside is not None,
        "known_groups": groups,
    }


def _group_by_kind(rows: Iterable[GrantRow]) -> Iterable[AgentGrants]:
    found: dict[str, list[str]] = {kind: [] for kind in GRANT_LABELS}
    for row in rows:
        found[row.kind].append(row.name)
    return (AgentGrants(kind, GRANT_LABELS[kind], names) for kind, names in found.items() if names)


def _limit_use(one: AllowanceStatus) -> AgentLimitUse:
    left = max(one.amount - one.used - one.held, type(one.amount)(0))
    held = f", {money(one.held)} held by open calls" if one.held else ""
    says = f"{money(one.used)} of {money(one.amount)} used{held}; {money(left)} left"
    what = "Calls" if one.kind == AllowanceKind.CALLS else "Cost"
    whose = f" of {one.tool_name}" if one.tool_name else " of all tools"
    return AgentLimitUse(
        f"{what}{whose} a {one.period}", one, gauge(one.used, one.amount, says, one.held), says
    )


def _tokens_context(request: PageRequest, agent: Agent) -> dict[str, Any]:
    """Only valid tokens."""
    if not may(request.caller, "view_token"):
        return {"tokens": None}
    rows = Token.objects.filter(user=agent.service_account_id).usable(timezone.now())
    found = list(rows[: MOST_TOKENS + 1])
    return {
        "tokens": found[:MOST_TOKENS],
        "more_tokens": len(found) > MOST_TOKENS,
        "issues": may(request.caller, "add_token"),
        "revokes": may(request.caller, "delete_token"),
    }


def _sessions_context(request: PageRequest, agent: Agent) -> dict[str, Any]:
    if not may(request.caller, "view_session"):
        return {"sessions": None}
    rows: QuerySet[Session] = session_actions.readable_sessions(request.caller).open()
    found = list(rows.filter(user=agent.service_account_id)[: MOST_SESSIONS + 1])
    return {"sessions": found[:MOST_SESSIONS], "more_sessions": len(found) > MOST_SESSIONS}


def _calls_context(request: PageRequest, agent: Agent) -> dict[str, Any]:
    if not may(request.caller, "view_execution"):
        return {"calls": None}
    mine = readable_executions(request.caller).filter(user=agent.service_account_id)
    newest = mine.defer(*LARGE_FIELDS).order_by("-created_at")
    since = timezone.now() - timedelta(days=REFUSED_WITHIN_DAYS)
    calls = list(newest[:MOST_CALLS])
    refused = newest.filter(unsuccessful__in=sorted(REFUSED), created_at__gte=since)[:MOST_CALLS]
    for row in [*calls, *refused]:
        row.shown_duration = format_duration(row.duration_ms)  # type: ignore[attr-defined]
    return {
        "calls": calls,
        "refused": refused,
        "refused_within_days": REFUSED_WITHIN_DAYS,
        "open_calls": count_at_most(open_calls_of_agent(agent), 999) if agent.active else 0,
    }
