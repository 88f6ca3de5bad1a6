"""Changes of tool services: approve or reject an announcement, create, change and delete."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tools.accounts.callers import actor_of
from tools.accounts.people import require
from tools.catalog.services import announcements, services
from tools.errors import Conflict, InvalidDefinition, Malformed, ToolcribError
from tools.models import ToolService
from tools.ui.access import PageRequest, page
from tools.ui.inputs import DEFAULT, GROUPS, NONE, THESE, FormInput, Widget, listed, placed, plain
from tools.ui.servers.services import render_service
from tools.web.reauthentication import Proof, proof

FORM_TEMPLATE, REMOVE_TEMPLATE = "servers/service_form.html", "servers/service_remove.html"


@proof(Proof.NEEDED)
@require_POST
@page
def decide_announcement(request: PageRequest, name: str) -> HttpResponseBase:
    """Decide on the announcement with the digest that was shown; of another one, show the page
    again and decide nothing."""
    require(request.caller, "change_toolservice")
    row = services.find_service(request.user.organization, name)
    given = plain(request.POST)
    digest, word = given.get("digest", ""), given.get("do", "")
    if word not in {"approve", "reject"}:
        raise Malformed("The form names nothing to do. Reload the page and try again.")
    by = actor_of(request.caller)
    try:
        if word == "approve":
            announcements.approve_service(row=row, digest=digest, by=by)
        else:
            reason = given.get("reason", "").strip()[:500]
            announcements.reject_service(row=row, digest=digest, by=by, reason=reason)
    except Conflict as conflict:
        if conflict.code == "digest_differs":
            fresh = services.find_service(request.user.organization, name)
            return render_service(request, fresh, stale=True, status=409)
        messages.error(request, conflict.message, extra_tags=conflict.code)
    except InvalidDefinition as error:
        messages.error(request, _error_text(error))
    else:
        said = "holds now as you read it" if word == "approve" else "is rejected"
        messages.success(request, f"What {row.name} announced {said}.")
    return redirect("service", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def write_service(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_toolservice")
    inputs = _service_inputs(None)
    if request.method == "GET":
        return _render_form(request, inputs, None)
    _fill_inputs(inputs, plain(request.POST))
    try:
        row = services.create_service(
            organization=request.user.organization,
            service={"id": _input_values(inputs)["id"], **_parse_inputs(inputs)},
            by=actor_of(request.caller),
        )
    except ToolcribError as error:
        return _render_form(request, inputs, None, error)
    messages.success(request, f"{row.name} is registered.")
    return redirect("service", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def change_service(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_toolservice")
    row = services.find_service(request.user.organization, name)
    inputs = _service_inputs(row)
    if request.method == "GET":
        return _render_form(request, inputs, row)
    _fill_inputs(inputs, plain(request.POST))
    try:
        services.change_service(row=row, changes=_parse_inputs(inputs), by=actor_of(request.caller))
    except ToolcribError as error:
        return _render_form(request, inputs, row, error)
    messages.success(request, f"{row.name} is changed.")
    return redirect("service", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def remove_service(request: PageRequest, name: str) -> HttpResponseBase:
    """Delete the service, after a confirmation page; refused while tools use it."""
    require(request.caller, "delete_toolservice")
    row = services.find_service(request.user.organization, name)
    if request.method == "GET":
        tools = [tool.name for tool in services.tools_of(row)]
        return render(request, REMOVE_TEMPLATE, {"row": row, "tools": tools})
    services.delete_service(row=row, by=actor_of(request.caller))
    messages.success(request, f"{row.name} is removed.")
    return redirect("services")


def _service_inputs(row: ToolService | None) -> list[FormInput]:
    """The inputs of the form; only the groups of a service that announced itself can be changed."""
    params = "\n".join(
        f"{one['name']}{'' if one.get('required') else ' optional'}"
        for one in (row.config_params if row else ())
    )
    names = row.default_groups if row else None
    kind = DEFAULT if names is None else THESE if names else NONE
    groups = [
        FormInput("groups_kind", "Groups of its tools", Widget.SELECT, options=GROUPS, value=kind,
              help="Where a tool names none of its own."),
        FormInput("groups", "Names of groups", help="Separated by commas.", place="default_groups",
              value=", ".join(names or ())),
    ]  # fmt: skip
    if row is not None and row.announced:
        return groups
    queues = [
        FormInput("request_queue", "Queue of requests", required=True,
              value=row.request_queue if row else ""),
        FormInput("response_queue", "Queue of answers", required=True,
              value=row.response_queue if row else ""),
        FormInput("config_params", "Parameters that its tools configure", Widget.AREA, value=params,
              help="One a line; a name, and “optional” after it where a tool may leave it out."),
    ]  # fmt: skip
    own = FormInput("id", "Name", required=True, help="Letters, digits, '_', '.' and '-'.")
    return [*([] if row else [own]), *queues, *groups]


def _fill_inputs(inputs: list[FormInput], given: dict[str, str]) -> None:
    for one in inputs:
        one.value = given.get(one.key, "").replace("\r\n", "\n")


def _input_values(inputs: list[FormInput]) -> dict[str, str]:
    return {one.key: one.value.strip() for one in inputs}


def _parse_inputs(inputs: list[FormInput]) -> dict[str, Any]:
    told = _input_values(inputs)
    said: dict[str, Any] = {"default_groups": listed(told["groups_kind"], told["groups"])}
    if "request_queue" in told:
        said |= {key: told[key] for key in ("request_queue", "response_queue")}
        lines = [line.split() for line in told["config_params"].splitlines() if line.strip()]
        said["config_params"] = [_config_parameter(words) for words in lines]
    return said


def _config_parameter(words: list[str]) -> dict[str, Any]:
    optional = len(words) > 1 and words[-1].lower() == "optional"
    name = " ".join(words[:-1] if optional else words)
    return {"name": name, "required": not optional}


def _render_form(
    request: PageRequest,
    inputs: list[FormInput],
    row: ToolService | None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    flaws: list[dict[str, str]] = []
    if error is not None:
        told = error.details.get("errors") or [{"field": "", "message": error.message}]
        flaws = placed([one | {"field": one["field"].partition("[")[0]} for one in told], inputs)
    context = {"inputs": inputs, "row": row, "flaws": flaws, "refused": error is not None}
    return render(request, FORM_TEMPLATE, context, status=error.http_status if error else 200)


def _error_text(error: InvalidDefinition) -> str:
    flaws = error.details.get("errors") or []
    told = "; ".join(f"{one['field']} {one['message']}" for one in flaws[:5])
    return f"{error.message} {told}".strip()
