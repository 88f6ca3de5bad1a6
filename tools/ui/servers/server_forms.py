"""`/servers/new/` and the forms that change a server: one for each transport, and one for the
credentials of a user or agent. Submitted headers and environment variables are never shown
again."""

from collections.abc import Mapping
from dataclasses import dataclass
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
from tools.catalog.mcp.mcp_values import MOST_VALUES, SEALED, shown_values
from tools.definitions.servers import MASK
from tools.errors import ToolcribError
from tools.models import CredentialScope, McpServer, OnDrift, Transport
from tools.ui.inputs import (
    DEFAULT,
    GROUPS,
    NONE,
    THESE,
    FormInput,
    Widget,
    choices,
    form_values,
    parse_name_choice,
    place_errors,
)
from tools.ui.servers.servers import TRANSPORTS
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

FORM_TEMPLATE, CREDENTIALS_TEMPLATE = "servers/server_form.html", "servers/server_credentials.html"
_ADDRESS_FIELDS = frozenset({"name", "url", "command", "args"})
_SCOPE_CHOICES = (
    (CredentialScope.ORGANIZATION, "the organization’s"),
    (CredentialScope.USER, "each person’s own"),
    (CredentialScope.AGENT, "each agent’s own"),
)
_DRIFT_CHOICES = (
    (OnDrift.REFUSE, "refuse it"),
    (OnDrift.SERVE, "serve it as approved"),
)
LITERAL = "value"
EMPTY_ROWS = 3  # empty rows for new ones
_REFERENCE_KINDS = {"env": "environment variable", "file": "file"}


@dataclass(frozen=True)
class SecretRow:
    """One header or variable; `kept` marks one that is set already."""

    key: str
    name: str
    kind: str
    kept: bool
    options: list[tuple[str, str]]

    @property
    def label(self) -> str:
        return self.name or "a new one"


@dataclass(frozen=True)
class SecretInputs:
    field: str
    title: str
    rows: list[SecretRow]


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def write_server(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_mcpserver")
    row = McpServer(transport=_parse_transport(request, Transport.STREAMABLE_HTTP))
    inputs = _server_inputs(row, row.transport, new=True)
    if request.method == "GET":
        return _render_form(request, inputs, row, None)
    said = _parse_inputs(request, inputs, row, row.transport)
    try:
        made = mcp_servers.create_server(
            organization=request.user.organization,
            server={"name": _input_value(inputs, "name"), **said},
            by=actor_of(request.caller),
        )
    except ToolcribError as error:
        return _render_form(request, inputs, row, None, error)
    messages.success(request, f"{made.name} is registered. Nothing was asked of it yet.")
    return redirect("server", name=made.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def change_server(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_mcpserver")
    row = mcp_servers.find_server(request.user.organization, name)
    transport = _parse_transport(request, Transport(row.transport))
    inputs = _server_inputs(row, transport, new=False)
    if request.method == "GET":
        return _render_form(request, inputs, row, transport)
    try:
        mcp_servers.change_server(
            row=row,
            changes=_parse_inputs(request, inputs, row, transport),
            by=actor_of(request.caller),
        )
    except ToolcribError as error:
        fresh = mcp_servers.find_server(request.user.organization, name)
        return _render_form(request, inputs, fresh, transport, error)
    messages.success(request, f"{row.name} is changed.")
    return redirect("server", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def credentials_page(request: PageRequest, name: str) -> HttpResponseBase:
    """Credentials that calls of one user or agent send in addition to the shared ones."""
    require(request.caller, "change_mcpserver")
    row = mcp_servers.find_server(request.user.organization, name)
    if request.method == "GET":
        return _render_credentials(request, row)
    given, by = form_values(request.POST), actor_of(request.caller)
    if owner := given.get("remove"):
        mcp_servers.delete_credential(row=row, owner=owner[:200], by=by)
        messages.success(request, f"The credentials of {owner} are removed.")
        return redirect("server-credentials", name=row.name)
    owner = f"{row.credential_scope}:{given.get('owner', '').strip()}"
    found = mcp_servers.find_credential(row, owner[:200])
    field = _secret_field(row.transport)
    before = getattr(found, field) if found else {}
    fresh = parse_secrets(field, given, before)
    values = {field: shown_values(before) | fresh}
    try:
        mcp_servers.set_credential(row=row, owner=owner, values=values, by=by)
    except ToolcribError as error:
        return _render_credentials(request, row, error, given.get("owner", ""))
    messages.success(request, f"The credentials of {owner} are kept.")
    return redirect("server-credentials", name=row.name)


def secret_inputs(field: str, title: str, values: Mapping[str, Any]) -> SecretInputs:
    """The rows of a form: those that are set, and some empty ones. They contain no secrets."""
    kept = [
        SecretRow(
            f"{field}-{at}", name, _secret_kind(value), True, _kind_options(_secret_kind(value))
        )
        for at, (name, value) in enumerate(sorted(values.items()))
    ]
    begin = len(kept)
    spare = [
        SecretRow(f"{field}-{at}", "", LITERAL, False, _kind_options(LITERAL))
        for at in range(begin, min(begin + EMPTY_ROWS, MOST_VALUES))
    ]
    return SecretInputs(field, title, kept + spare)


def parse_secrets(field: str, data: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The submitted values. A kept row without a new value stays; one without a name is ignored."""
    said: dict[str, Any] = {}
    for at in range(MOST_VALUES):
        key = f"{field}-{at}"
        name, kind = data.get(f"{key}-name", "").strip(), data.get(f"{key}-kind", LITERAL)
        value = data.get(f"{key}-value", "")
        if not name or data.get(f"{key}-remove"):
            continue
        if kind != LITERAL:
            reference, _, target = kind.partition(":")
            said[name] = {reference: target}
        else:
            stays = not value and before.get(name) == SEALED
            said[name] = MASK if stays else value
    return said


def _parse_transport(request: PageRequest, default: Transport) -> Transport:
    """The transport of the tab: part of the URL, so that a form is shown again on its tab."""
    wanted = request.GET.get("transport", "")
    return Transport(wanted) if wanted in Transport.values else default


def _secret_field(transport: str) -> str:
    return "env" if transport == Transport.STDIO else "headers"


def _server_inputs(row: McpServer, transport: str, *, new: bool) -> list[FormInput]:
    own = FormInput("name", "Name", required=True, help="Letters, digits, '_', '.' and '-'.")
    place = _command_inputs(row) if transport == Transport.STDIO else _url_inputs(row)
    return [*([own] if new else []), *place, *_rule_inputs(row, new)]


def _url_inputs(row: McpServer) -> list[FormInput]:
    return [
        FormInput("url", "Address", required=True, value=row.url,
              help="Such as https://mcp.example.com/mcp."),
    ]  # fmt: skip


def _command_inputs(row: McpServer) -> list[FormInput]:
    allowed = [*settings.MCP_STDIO_ALLOWED]
    return [
        FormInput("command", "Server", Widget.SELECT, options=choices(allowed), value=row.command,
              help="Of those that the operator allows; it runs behind the wall."),
        FormInput("args", "Arguments", Widget.AREA, "One a line.", value="\n".join(row.args)),
    ]  # fmt: skip


def _rule_inputs(row: McpServer, new: bool) -> list[FormInput]:
    names = row.default_groups
    kind = DEFAULT if names is None else THESE if names else NONE
    asked = [
        FormInput("credential_scope", "Credentials of a call", Widget.SELECT,
              options=_SCOPE_CHOICES, value=row.credential_scope),
        FormInput("on_drift", "A tool that changed upstream", Widget.SELECT, options=_DRIFT_CHOICES,
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


def _input_value(inputs: list[FormInput], key: str) -> str:
    return next((one.value.strip() for one in inputs if one.key == key), "")


def _parse_inputs(
    request: PageRequest, inputs: list[FormInput], row: McpServer, transport: str
) -> dict[str, Any]:
    """The submitted values in the API's format; the inputs keep the submitted texts."""
    given = form_values(request.POST)
    for one in inputs:
        one.value = given.get(one.key, "").replace("\r\n", "\n")
    values = {one.key: one.value.strip() for one in inputs}
    field = _secret_field(transport)
    said: dict[str, Any] = {
        key: values[key] for key in ("credential_scope", "on_drift", "remote_name")
    }
    said |= {
        "transport": str(transport),
        "url": values.get("url", ""),
        "command": values.get("command", ""),
        "args": [line for line in values.get("args", "").splitlines() if line],
        "group": parse_name_choice(values["group_kind"], values["group"]),
        "check_every_s": _parse_number(values["check_every_s"]),
        field: parse_secrets(field, given, getattr(row, field)),
    }
    return said | ({"enabled": bool(values["enabled"])} if "enabled" in values else {})


def _parse_number(text: str) -> float | str:
    """A number; other texts are returned unchanged, and validation refuses them."""
    plain_digits = text.replace(".", "", 1)
    return float(text) if plain_digits.isascii() and plain_digits.isdecimal() else text[:40]


def _render_form(
    request: PageRequest,
    inputs: list[FormInput],
    row: McpServer,
    transport: str | None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    chosen = transport or row.transport
    field = _secret_field(chosen)
    title = "Environment" if field == "env" else "Headers"
    context = {
        "sections": [
            ("What it is", [one for one in inputs if one.key in _ADDRESS_FIELDS]),
            ("Rules", [one for one in inputs if one.key not in _ADDRESS_FIELDS]),
        ],
        "row": None if transport is None else row,
        "transport": chosen,
        "transports": TRANSPORTS.items(),
        "secrets": secret_inputs(field, title, getattr(row, field)),
        "nothing_allowed": chosen == Transport.STDIO and not settings.MCP_STDIO_ALLOWED,
        "flaws": place_errors(_form_errors(error), inputs),
        "refused": error is not None,
    }
    return render(request, FORM_TEMPLATE, context, status=error.http_status if error else 200)


def _form_errors(error: ToolcribError | None) -> list[dict[str, str]]:
    if error is None:
        return []
    return error.field_errors()


def _render_credentials(
    request: PageRequest, row: McpServer, error: ToolcribError | None = None, owner: str = ""
) -> HttpResponse:
    field, rows = _secret_field(row.transport), list(row.credentials.all())
    names = owner_texts(one.owner for one in rows)
    context = {
        "row": row,
        "rows": [(names[one.owner], shown_values(getattr(one, field))) for one in rows],
        "secrets": secret_inputs(field, "Environment" if field == "env" else "Headers", {}),
        "owner": owner,
        "flaws": _form_errors(error),
        "refused": error is not None,
    }
    return render(
        request, CREDENTIALS_TEMPLATE, context, status=error.http_status if error else 200
    )


def _secret_kind(value: Any) -> str:
    if value == SEALED or not isinstance(value, dict):
        return LITERAL
    kind, target = next(iter(value.items()), ("", ""))
    return f"{kind}:{target}"


def _kind_options(kind: str) -> list[tuple[str, str]]:
    """The kinds of a value: literal, or a reference that the operator allows."""
    known = list(dict.fromkeys([*settings.MCP_REFERENCES_ALLOWED, kind]))
    references = [(one, _reference_text(one)) for one in known if one != LITERAL]
    return [(LITERAL, "a value, kept encrypted"), *references]


def _reference_text(reference: str) -> str:
    kind, _, target = reference.partition(":")
    gone = "" if reference in settings.MCP_REFERENCES_ALLOWED else " (not allowed any more)"
    return f"{_REFERENCE_KINDS.get(kind, kind)} {target}{gone}"
