"""Changes of an agent from its page: suspend and reactivate, grant and revoke, issue and revoke
tokens."""

from uuid import UUID

from django.contrib import messages
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from tools.accounts import account_actions
from tools.accounts.callers import actor_of
from tools.accounts.grants import grant_actions
from tools.accounts.grants.grant_actions import AGENT, BODY_KINDS
from tools.accounts.user_permissions import require
from tools.definitions.callers import Scope
from tools.errors import Malformed, NotFound, ToolcribError
from tools.execution.agent_calls import stop_calls
from tools.models.permission import GrantRow
from tools.ui.access import PageRequest, page
from tools.ui.agents.agent import show, token_inputs
from tools.ui.agents.agents import find_agent
from tools.ui.inputs import FormInput, plain, words
from tools.web.proof import Proof, proof

LONGEST_LABEL = 100
MOST_DAYS = 365
MOST_NAMES = 200
LONGEST_REASON = 500
SCOPES = (Scope.READ, Scope.EXECUTE)


@proof(lambda request, *, active, **_: active)
@require_POST
@page
def switch(request: PageRequest, slug: str, active: bool) -> HttpResponseBase:
    """A suspended agent is refused from the next request on; open calls are canceled if asked."""
    require(request.caller, "change_agent")
    agent = find_agent(request, slug)
    stops = not active and bool(request.POST.get("stop"))
    if stops:
        require(request.caller, "change_execution")
    reason = plain(request.POST).get("reason", "").strip()[:LONGEST_REASON]
    by = actor_of(request.caller)
    account_actions.change_agent(agent=agent, by=by, active=active, reason=reason)
    if active:
        messages.success(request, f"{slug} is let in again.")
    else:
        stopped = stop_calls(caller=request.caller, agent=agent) if stops else 0
        ended = f", and {stopped} of its calls ended" if stopped else ""
        messages.success(
            request, f"{slug} is suspended: its tokens are refused from now on{ended}."
        )
    return redirect("agent", slug=slug)


@proof(Proof.NEEDED)
@require_POST
@page
def give(request: PageRequest, slug: str) -> HttpResponseBase:
    require(request.caller, "change_agent")
    agent, data = find_agent(request, slug), plain(request.POST)
    kind, named = data.get("kind", ""), data.get("names", "")[:20_000]
    names = words(named.replace("\n", ","))
    try:
        _check_names(kind, names)
        grant_actions.give(
            giver=request.caller, kind=AGENT, name=slug, wanted={BODY_KINDS[kind]: names}
        )
    except ToolcribError as refusal:
        return show(request, agent, refusal=refusal, grant_kind=kind, grant_names=named)
    messages.success(request, f"{slug} holds {', '.join(names)[:200]}.")
    return redirect("agent", slug=slug)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def take(request: PageRequest, slug: str) -> HttpResponseBase:
    require(request.caller, "change_agent")
    agent, data = find_agent(request, slug), plain(request.POST)
    kind, name = data.get("kind", ""), data.get("name", "")[:200]
    if kind not in BODY_KINDS:
        raise Malformed("Say which kind of grant is taken away.")
    grant_actions.take(giver=request.caller, row=GrantRow(AGENT, agent.slug, kind, name))
    messages.success(request, f"{name} is taken away from {slug}.")
    return redirect("agent", slug=slug)


@proof(Proof.NEEDED)
@sensitive_post_parameters()
@require_POST
@page
def issue(request: PageRequest, slug: str) -> HttpResponseBase:
    """Issue a token; the page shows it once, or the error."""
    for permission in ("add_token", "view_agent"):
        require(request.caller, permission)
    agent = find_agent(request, slug)
    inputs = token_inputs()
    data = plain(request.POST)
    for one in inputs:
        one.value = data.get(one.key, "").strip()[:20_000]
    scopes = [one for one in SCOPES if one in request.POST.getlist("scope")]
    _find_flaws(inputs, scopes)
    shown = {"token_inputs": inputs, "token_scopes": [str(one) for one in scopes]}
    if any(one.errors for one in inputs):
        refusal = Malformed("No token was made: see the marked fields.")
        return show(request, agent, refusal=refusal, **shown)
    label, days, groups, tools = (one.value for one in inputs)
    try:
        token, text = account_actions.create_token(
            user=agent.service_account,
            by=actor_of(request.caller),
            giver=request.caller,
            scopes=scopes,
            label=label,
            days=int(days),
            groups=words(groups) or None,
            tools=words(tools) or None,
        )
    except ToolcribError as refusal:
        return show(request, agent, refusal=refusal, **shown)
    return show(request, agent, made=token, text=text)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def revoke(request: PageRequest, slug: str, token_id: UUID) -> HttpResponseBase:
    require(request.caller, "delete_token")
    agent = find_agent(request, slug)
    token = agent.service_account.tokens.filter(pk=token_id).first()
    if token is None:
        raise NotFound("The agent has no such token.", code="token_not_found")
    account_actions.revoke_token(token=token, by=actor_of(request.caller))
    messages.success(request, f"{token.label or token} is refused from now on.")
    return redirect("agent", slug=slug)


def _check_names(kind: str, names: list[str]) -> None:
    """Raises `Malformed`."""
    if kind not in BODY_KINDS:
        raise Malformed("Say which kind of grant is given.")
    if not names:
        raise Malformed("Name at least one thing to grant.")
    longest = 128 if kind == "tool" else 100
    if len(names) > MOST_NAMES or any(len(name) > longest for name in names):
        raise Malformed(f"At most {MOST_NAMES} names of {longest} characters are given at once.")


def _find_flaws(inputs: list[FormInput], scopes: list[Scope]) -> None:
    label, days, *lists = inputs
    if not 0 < len(label.value) <= LONGEST_LABEL:
        label.errors.append(f"A name of 1 to {LONGEST_LABEL} characters is needed.")
    if not (days.value.isascii() and days.value.isdecimal() and len(days.value) <= 3
            and 0 < int(days.value) <= MOST_DAYS):  # fmt: skip
        days.errors.append(f"A number from 1 to {MOST_DAYS} is needed.")
    for one in lists:
        if len(words(one.value)) > MOST_NAMES or any(len(name) > 100 for name in words(one.value)):
            one.errors.append(f"At most {MOST_NAMES} names of 100 characters are needed.")
    if not scopes:
        label.errors.append("Choose at least one thing the token may do.")
