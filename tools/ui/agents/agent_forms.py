"""`/agents/new/` and the form that changes an agent's properties."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tools.accounts import account_actions
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.bounds import MOST
from tools.errors import Malformed, ToolcribError
from tools.models import Agent
from tools.ui.access import PageRequest, page
from tools.ui.agents.agents import find_agent
from tools.ui.inputs import FormInput, Widget, plain, words
from tools.web.reauthentication import Proof, proof

FORM = "agents/agent_form.html"
LONGEST = {"slug": 63, "description": 500}
_LISTS = ("groups", "tools", "tool_groups", "permissions")
_MOST_NAMES = 200


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def write_agent(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_agent")
    inputs = _new_inputs()
    if request.method != "POST":
        return _form(request, inputs)
    given = _given(inputs, request)
    _check_lengths(inputs)
    if any(one.errors for one in inputs):
        return _form(request, inputs, error=Malformed("See the marked fields."))
    try:
        agent = account_actions.create_agent(
            organization=request.user.organization,
            by=actor_of(request.caller),
            giver=request.caller,
            **_as_body(given),
        )
    except ToolcribError as error:
        return _form(request, inputs, error=error)
    messages.success(request, f"{agent.slug} is made. Give it a token, and it can call.")
    return redirect("agent", slug=agent.slug)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_agent(request: PageRequest, slug: str) -> HttpResponseBase:
    require(request.caller, "change_agent")
    agent = find_agent(request, slug)
    inputs = _own_inputs(agent)
    if request.method != "POST":
        return _form(request, inputs, agent)
    given = _given(inputs, request)
    _check_lengths(inputs)
    most = _number(given["max_in_flight"], inputs[-1])
    if any(one.errors for one in inputs):
        return _form(request, inputs, agent, Malformed("See the marked fields."))
    account_actions.change_agent(
        agent=agent,
        by=actor_of(request.caller),
        description=given["description"],
        strict=bool(given["strict"]),
        max_in_flight=most,
    )
    messages.success(request, f"{agent.slug} is changed.")
    return redirect("agent", slug=agent.slug)


def _new_inputs() -> list[FormInput]:
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
        _strict(""),
    ]  # fmt: skip


def _own_inputs(agent: Agent) -> list[FormInput]:
    most = "" if agent.max_in_flight is None else str(agent.max_in_flight)
    return [
        FormInput("description", "What it is for", value=agent.description),
        _strict("yes" if agent.strict else ""),
        FormInput("max_in_flight", "Calls that may be open at once", value=most,
              help="Empty is no limit."),
    ]  # fmt: skip


def _strict(value: str) -> FormInput:
    return FormInput(
        "strict", "Refuse names of groups that nobody knows", Widget.CHECK, value=value,
        help="Else they are ignored, with a warning.",
    )  # fmt: skip


def _given(inputs: list[FormInput], request: PageRequest) -> dict[str, str]:
    """The submitted values, which stay in the form."""
    data = plain(request.POST)
    for one in inputs:
        one.value = data.get(one.key, "").strip()[:20_000]
    return {one.key: one.value for one in inputs}


def _as_body(given: Mapping[str, str]) -> dict[str, Any]:
    """The values in the API's format: empty ones are left to their default, except groups."""
    lists = {key: words(given[key]) or None for key in _LISTS}
    return {
        "slug": given["slug"],
        "description": given["description"],
        "strict": bool(given["strict"]),
        **lists,
        "groups": words(given["groups"]),
    }


def _check_lengths(inputs: list[FormInput]) -> None:
    for one in inputs:
        most = LONGEST.get(one.key)
        if most and len(one.value) > most:
            one.errors.append(f"At most {most} characters.")
        names = words(one.value) if one.key in _LISTS else []
        if len(names) > _MOST_NAMES or any(len(name) > 100 for name in names):
            one.errors.append(f"At most {_MOST_NAMES} names of 100 characters.")


def _number(text: str, at: FormInput) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= MOST:
        return int(text)
    at.errors.append(f"A whole number from 1 to {MOST:,}, or nothing.")
    return None


def _form(
    request: PageRequest,
    inputs: list[FormInput],
    agent: Agent | None = None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    flawed = any(one.errors for one in inputs)
    flaws = [] if error is None or flawed else [{"field": "", "message": error.message}]
    context = {"inputs": inputs, "agent": agent, "flaws": flaws, "refused": error is not None}
    return render(request, FORM, context, status=error.http_status if error else 200)
