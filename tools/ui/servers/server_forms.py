"""`/servers/new/` and the forms that change a server: one for each transport, and one for the
credentials of a user or agent."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.mcp import mcp_servers
from tools.catalog.mcp.mcp_tokens import owner_texts
from tools.catalog.mcp.mcp_values import shown_values
from tools.errors import ToolcribError
from tools.models import CredentialScope, McpServer, OnDrift, Transport
from tools.ui.access import PageRequest, page
from tools.ui.inputs import (
    DEFAULT,
    GROUPS,
    NONE,
    THESE,
    FormInput,
    Widget,
    choices,
    listed,
    placed,
    plain,
)
from tools.ui.servers.secrets import secrets_of, values_from
from tools.ui.servers.servers import TRANSPORTS
from tools.web.proof import Proof, proof

FORM, CREDENTIALS = "servers/server_form.html", "servers/server_credentials.html"
_PLACE = frozenset({"name", "url", "command", "args"})
_SCOPES = (
    (CredentialScope.ORGANIZATION, "the organization’s"),
    (CredentialScope.USER, "each person’s own"),
    (CredentialScope.AGENT, "each agent’s own"),
)
_DRIFT = (
    (OnDrift.REFUSE, "refuse it"),
    (OnDrift.SERVE, "serve it as approved"),
)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def write_server(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_mcpserver")
    row = McpServer(transport=_transport(request, Transport.STREAMABLE_HTTP))
    inputs = _inputs(row, row.transport, new=True)
    if request.method == "GET":
        return _form(request, inputs, row, None)
    said = _said(request, inputs, row, row.transport)
    try:
        made = mcp_servers.create_server(
            organization=request.user.organization,
            server={"name": _value(inputs, "name"), **said},
            by=actor_of(request.caller),
        )
    except ToolcribError as error:
        return _form(request, inputs, row, None, error)
    messages.success(request, f"{made.name} is registered. Nothing was asked of it yet.")
    return redirect("server", name=made.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def change_server(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_mcpserver")
    row = mcp_servers.find_server(request.user.organization, name)
    transport = _transport(request, Transport(row.transport))
    inputs = _inputs(row, transport, new=False)
    if request.method == "GET":
        return _form(request, inputs, row, transport)
    try:
        mcp_servers.change_server(
            row=row,
            changes=_said(request, inputs, row, transport),
            by=actor_of(request.caller),
        )
    except ToolcribError as error:
        fresh = mcp_servers.find_server(request.user.organization, name)
        return _form(request, inputs, fresh, transport, error)
    messages.success(request, f"{row.name} is changed.")
    return redirect("server", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def credentials(request: PageRequest, name: str) -> HttpResponseBase:
    """Credentials that calls of one user or agent send in addition to the shared ones."""
    require(request.caller, "change_mcpserver")
    row = mcp_servers.find_server(request.user.organization, name)
    if request.method == "GET":
        return _credentials(request, row)
    given, by = plain(request.POST), actor_of(request.caller)
    if owner := given.get("remove"):
        mcp_servers.delete_credential(row=row, owner=owner[:200], by=by)
        messages.success(request, f"The credentials of {owner} are removed.")
        return redirect("server-credentials", name=row.name)
    owner = f"{row.credential_scope}:{given.get('owner', '').strip()}"
    found = mcp_servers.find_credential(row, owner[:200])
    field = _field(row.transport)
    before = getattr(found, field) if found else {}
    fresh = values_from(field, given, before)
    values = {field: shown_values(before) | fresh}
    try:
        mcp_servers.set_credential(row=row, owner=owner, values=values, by=by)
    except ToolcribError as error:
        return _credentials(request, row, error, given.get("owner", ""))
    messages.success(request, f"The credentials of {owner} are kept.")
    return redirect("server-credentials", name=row.name)


def _transport(request: PageRequest, default: Transport) -> Transport:
    """The transport of the tab: part of the URL, so that a form is shown again on its tab."""
    wanted = request.GET.get("transport", "")
    return Transport(wanted) if wanted in Transport.values else default


def _field(transport: str) -> str:
    return "env" if transport == Transport.STDIO else "headers"


def _inputs(row: McpServer, transport: str, *, new: bool) -> list[FormInput]:
    own = FormInput("name", "Name", required=True, help="Letters, digits, '_', '.' and '-'.")
    place = _command(row) if transport == Transport.STDIO else _address(row)
    return [*([own] if new else []), *place, *_rules(row, new)]


def _address(row: McpServer) -> list[FormInput]:
    return [
        FormInput("url", "Address", required=True, value=row.url,
              help="Such as https://mcp.example.com/mcp."),
    ]  # fmt: skip


def _command(row: McpServer) -> list[FormInput]:
    allowed = [*settings.MCP_STDIO_ALLOWED]
    return [
        FormInput("command", "Server", Widget.SELECT, options=choices(allowed), value=row.command,
              help="Of those that the operator allows; it runs behind the wall."),
        FormInput("args", "Arguments", Widget.AREA, "One a line.", value="\n".join(row.args)),
    ]  # fmt: skip


def _rules(row: McpServer, new: bool) -> list[FormInput]:
    names = row.default_groups
    kind = DEFAULT if names is None else THESE if names else NONE
    asked = [
        FormInput("credential_scope", "Credentials of a call", Widget.SELECT,
              options=_SCOPES, value=row.credential_scope),
        FormInput("on_drift", "A tool that changed upstream", Widget.SELECT, options=_DRIFT,
              value=row.on_drift, help="Until a person has looked at the change."),
        FormInput("check_every_s", "Check its list every", value=f"{row.check_every_s:g}",
              help="Seconds a list may be old that a call is held to; 0 asks before each."),
        FormInput("group_kind", "Groups of its tools", Widget.SELECT, options=GROUPS, value=kind,
              help="Where a tool names none of its own."),
        FormInput("group", "Names of groups", value=", ".join(names or ()),
              help="Separated by commas."),
        FormInput("remote_name", "Name of its one tool there", value=row.remote_name,
              help="Only for a server whose tool is called here as the server is."),
    ]  # fmt: skip
    if not new:
        asked.append(FormInput("enabled", "It may be called", Widget.CHECK,
                           value="yes" if row.enabled else ""))  # fmt: skip
    return asked


def _value(inputs: list[FormInput], key: str) -> str:
    return next((one.value.strip() for one in inputs if one.key == key), "")


def _said(
    request: PageRequest, inputs: list[FormInput], row: McpServer, transport: str
) -> dict[str, Any]:
    """The submitted values in the API's format; the inputs keep the submitted texts."""
    given = plain(request.POST)
    for one in inputs:
        one.value = given.get(one.key, "").replace("\r\n", "\n")
    told = {one.key: one.value.strip() for one in inputs}
    field = _field(transport)
    said: dict[str, Any] = {
        key: told[key] for key in ("credential_scope", "on_drift", "remote_name")
    }
    said |= {
        "transport": str(transport),
        "url": told.get("url", ""),
        "command": told.get("command", ""),
        "args": [line for line in told.get("args", "").splitlines() if line],
        "group": listed(told["group_kind"], told["group"]),
        "check_every_s": _number(told["check_every_s"]),
        field: values_from(field, given, getattr(row, field)),
    }
    return said | ({"enabled": bool(told["enabled"])} if "enabled" in told else {})


def _number(text: str) -> float | str:
    """A number; other texts are returned unchanged, and validation refuses them."""
    plain_digits = text.replace(".", "", 1)
    return float(text) if plain_digits.isascii() and plain_digits.isdecimal() else text[:40]


def _form(
    request: PageRequest,
    inputs: list[FormInput],
    row: McpServer,
    transport: str | None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    chosen = transport or row.transport
    field = _field(chosen)
    title = "Environment" if field == "env" else "Headers"
    context = {
        "sections": [
            ("What it is", [one for one in inputs if one.key in _PLACE]),
            ("Rules", [one for one in inputs if one.key not in _PLACE]),
        ],
        "row": None if transport is None else row,
        "transport": chosen,
        "transports": TRANSPORTS.items(),
        "secrets": secrets_of(field, title, getattr(row, field)),
        "nothing_allowed": chosen == Transport.STDIO and not settings.MCP_STDIO_ALLOWED,
        "flaws": placed(_flaws(error), inputs),
        "refused": error is not None,
    }
    return render(request, FORM, context, status=error.http_status if error else 200)


def _flaws(error: ToolcribError | None) -> list[dict[str, str]]:
    if error is None:
        return []
    return error.details.get("errors") or [{"field": "", "message": error.message}]


def _credentials(
    request: PageRequest, row: McpServer, error: ToolcribError | None = None, owner: str = ""
) -> HttpResponse:
    field, rows = _field(row.transport), list(row.credentials.all())
    names = owner_texts(one.owner for one in rows)
    context = {
        "row": row,
        "rows": [(names[one.owner], shown_values(getattr(one, field))) for one in rows],
        "secrets": secrets_of(field, "Environment" if field == "env" else "Headers", {}),
        "owner": owner,
        "flaws": _flaws(error),
        "refused": error is not None,
    }
    return render(request, CREDENTIALS, context, status=error.http_status if error else 200)
