"""`/servers/new/` and the forms that change a server: one for each transport, and one for the
credentials of a user or agent. Submitted headers and environment variables are never shown
again."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from tools.accounts.callers import actor_of
from tools.catalog.mcp import mcp_servers
from tools.catalog.mcp.mcp_servers import LONGEST_URL
from tools.catalog.mcp.mcp_tokens import owner_texts
from tools.catalog.mcp.mcp_values import (
    MOST_VALUES,
    SEALED,
    UnreadableMcpValue,
    opened_secrets,
    shown_values,
)
from tools.models import CredentialScope, McpCredential, McpServer, OnDrift, Transport
from tools.ui.servers.servers import TRANSPORTS
from tools.web.form_fields import (
    GROUP_CHOICES,
    LinesField,
    NamesField,
    NumberField,
    choices,
    chosen_names,
    name_choice,
)
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest, form_page
from tools.web.reauthentication import Proof
from tools.web.secret_values import SecretValuesField, api_values

FORM_TEMPLATE, CREDENTIALS_TEMPLATE = "servers/server_form.html", "servers/server_credentials.html"
_SCOPE_CHOICES = (
    (CredentialScope.ORGANIZATION, "the organization’s"),
    (CredentialScope.USER, "each person’s own"),
    (CredentialScope.AGENT, "each agent’s own"),
)
_DRIFT_CHOICES = (
    (OnDrift.REFUSE, "refuse it"),
    (OnDrift.SERVE, "serve it as approved"),
)


class _SecretsForm(ActionForm):
    """A form with the headers or the environment variables of a transport."""

    headers = SecretValuesField(label="Headers", most=MOST_VALUES, placeholder="Authorization")
    env = SecretValuesField(label="Environment", most=MOST_VALUES, placeholder="API_KEY")
    secrets: str  # the one of the two fields that the transport has

    def keep_fields(self, transport: str) -> None:
        self.secrets = "env" if transport == Transport.STDIO else "headers"
        del self.fields["headers" if self.secrets == "env" else "env"]


class ServerForm(_SecretsForm):
    """The fields depend on the transport, which is part of the URL; a new server has a name."""

    row: McpServer
    sections = (
        ("What it is", ("name", "url", "command", "args")),
        ("What everybody’s calls carry", ("headers", "env")),
        (
            "Rules",
            (
                "credential_scope", "on_drift", "check_every_s", "group_kind", "group",
                "remote_name", "enabled",
            ),
        ),
    )  # fmt: skip
    transport = forms.CharField(widget=forms.HiddenInput, required=False)
    name = forms.CharField(
        label="Name", max_length=128, help_text="Letters, digits, '_', '.' and '-'."
    )
    url = forms.CharField(
        label="Address", max_length=LONGEST_URL, help_text="Such as https://mcp.example.com/mcp."
    )
    command = forms.ChoiceField(
        label="Server", help_text="Of those that the operator allows; it runs behind the wall."
    )
    args = LinesField(label="Arguments", help_text="One a line.")
    credential_scope = forms.ChoiceField(label="Credentials of a call", choices=_SCOPE_CHOICES)
    on_drift = forms.ChoiceField(
        label="A tool that changed upstream",
        choices=_DRIFT_CHOICES,
        help_text="Until a person has looked at the change.",
    )
    check_every_s = NumberField(
        label="Check its list every",
        help_text="Seconds a list may be old that a call is held to; 0 asks before each.",
    )
    group_kind = forms.ChoiceField(
        label="Groups of its tools",
        choices=GROUP_CHOICES,
        help_text="Where a tool names none of its own.",
    )
    group = NamesField(label="Names of groups", help_text="Separated by commas.")
    remote_name = forms.CharField(
        label="Name of its one tool there",
        max_length=128,
        required=False,
        help_text="Only for a server whose tool is called here as the server is.",
    )
    enabled = forms.BooleanField(label="It may be called", required=False)

    def __init__(self, request: PageRequest, row: McpServer, transport: Transport) -> None:
        self.wanted = transport
        super().__init__(request, row, initial=_stored_values(row) | {"transport": transport})

    @property
    def is_new(self) -> bool:
        return self.row._state.adding

    def build(self) -> None:
        self.keep_fields(self.wanted)
        over_stdio = self.wanted == Transport.STDIO
        left_out = {"url"} if over_stdio else {"command", "args"}
        for name in left_out | ({"enabled"} if self.is_new else {"name"}):
            del self.fields[name]
        if over_stdio:
            command = self.fields["command"]
            assert isinstance(command, forms.ChoiceField)
            command.choices = choices(settings.MCP_STDIO_ALLOWED)

    def stored_values(self) -> dict[str, Any]:
        values = _stored_values(self.row)
        return {name: values[name] for name in self.fields if name in values}

    def clean_transport(self) -> Transport:
        return self.wanted

    def act(self, changes: dict[str, Any]) -> Any:
        if {"group_kind", "group"} & changes.keys():
            kind, names = (self.cleaned_data[name] for name in ("group_kind", "group"))
            changes = changes | {"group": chosen_names(kind, names)}
        if self.secrets in changes:
            changes = changes | {self.secrets: api_values(changes[self.secrets])}
        if "transport" in changes:
            unused = {"url": ""} if self.wanted == Transport.STDIO else {"command": "", "args": []}
            changes = unused | changes
        changes.pop("group_kind", None)
        by = actor_of(self.request.caller)
        if not self.is_new:
            return mcp_servers.change_server(row=self.row, changes=changes, by=by)
        organization = self.request.user.organization
        return mcp_servers.create_server(organization=organization, server=changes, by=by)


class CredentialForm(_SecretsForm):
    """Adds to what calls of one user or agent carry; names that are not given stay."""

    row: McpServer
    sections = (("Set or replace", ("owner", "headers", "env")),)
    owner = forms.CharField(label="Person", max_length=190)
    is_new = True

    def build(self) -> None:
        self.keep_fields(self.row.transport)
        self.fields[
            "owner"
        ].help_text = (
            "By the name to log in with. Names that are set already and not given here stay."
        )
        if self.row.credential_scope == CredentialScope.AGENT:
            self.fields["owner"].label = "Agent"
            self.fields[
                "owner"
            ].help_text = "By its short name. Names that are set already and not given here stay."
        if self.is_bound:
            found = mcp_servers.find_credential(self.row, self.owner_of(self.data.get("owner", "")))
            field = self.fields[self.secrets]
            assert isinstance(field, SecretValuesField)
            field.stored = _secret_values(self.row, found, self.secrets) if found else {}

    def owner_of(self, name: str) -> str:
        return f"{self.row.credential_scope}:{name.strip()}"[:200]

    def act(self, changes: dict[str, Any]) -> Any:
        owner = self.owner_of(changes["owner"])
        found = mcp_servers.find_credential(self.row, owner)
        before = shown_values(getattr(found, self.secrets)) if found else {}
        values = {self.secrets: before | api_values(changes[self.secrets])}
        by = actor_of(self.request.caller)
        return mcp_servers.set_credential(row=self.row, owner=owner, values=values, by=by)


@form_page(Proof.NEEDED, "add_mcpserver")
def write_server(request: PageRequest) -> HttpResponseBase:
    transport = _parse_transport(request, Transport.STREAMABLE_HTTP)
    row = McpServer(organization=request.user.organization, transport=transport)
    form = ServerForm(request, row, transport)
    if not form.save():
        return _show_form(form, None)
    made = form.result.name
    return form.redirect(f"{made} is registered. Nothing was asked of it yet.", "server", name=made)


@form_page(Proof.NEEDED, "change_mcpserver")
def change_server(request: PageRequest, name: str) -> HttpResponseBase:
    row = mcp_servers.find_server(request.user.organization, name)
    form = ServerForm(request, row, _parse_transport(request, Transport(row.transport)))
    if not form.save():
        return _show_form(form, row)
    return form.redirect(f"{row.name} is changed.", "server", name=row.name)


@form_page(Proof.NEEDED, "change_mcpserver")
def credentials_page(request: PageRequest, name: str) -> HttpResponseBase:
    """Credentials that calls of one user or agent send in addition to the shared ones."""
    row = mcp_servers.find_server(request.user.organization, name)
    if owner := request.POST.get("remove"):
        by = actor_of(request.caller)
        mcp_servers.delete_credential(row=row, owner=owner[:200], by=by)
        messages.success(request, f"The credentials of {owner} are removed.")
        return redirect("server-credentials", name=row.name)
    form = CredentialForm(request, row)
    if form.save():
        owner = form.owner_of(form.cleaned_data["owner"])
        said = f"The credentials of {owner} are kept."
        return form.redirect(said, "server-credentials", name=row.name)
    rows = list(row.credentials.all())
    names = owner_texts(one.owner for one in rows)
    shown = [(names[one.owner], shown_values(getattr(one, form.secrets))) for one in rows]
    return form.show(CREDENTIALS_TEMPLATE, {"row": row, "rows": shown})


def _show_form(form: ServerForm, row: McpServer | None) -> HttpResponse:
    context = {
        "row": row,
        "transport": form.wanted,
        "transports": TRANSPORTS.items(),
        "nothing_allowed": form.wanted == Transport.STDIO and not settings.MCP_STDIO_ALLOWED,
    }
    return form.show(FORM_TEMPLATE, context)


def _parse_transport(request: PageRequest, default: Transport) -> Transport:
    """The transport of the tab: part of the URL, so that a form is shown again on its tab."""
    wanted = request.GET.get("transport", "")
    return Transport(wanted) if wanted in Transport.values else default


def _stored_values(row: McpServer) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in ServerForm.base_fields if hasattr(row, name)}
    kind, names = name_choice(row.default_groups)
    secrets = {name: _secret_values(row, row, name) for name in ("headers", "env")}
    return values | secrets | {"group_kind": kind, "group": names}


def _secret_values(
    server: McpServer, holder: McpServer | McpCredential, field: str
) -> dict[str, Any]:
    """With the secrets; "" in place of one that cannot be read."""
    try:
        opened: Mapping[str, str] = opened_secrets(
            bytes(holder.sealed or b""), organization=server.organization_id, row=holder.pk
        ).get(field, {})
    except UnreadableMcpValue:
        opened = {}
    return {
        name: opened.get(name, "") if value == SEALED else value
        for name, value in getattr(holder, field).items()
    }
