"""Connects an MCP server by OAuth: redirect to the authorization server, and its callback."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from sandbox.egress.rules.grammar import Url
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.mcp import mcp_consents, mcp_servers
from tools.errors import Conflict, Malformed, NotFound, Unavailable
from tools.models import Grant, McpOAuthClient, McpServer
from tools.web.form_fields import SecretField
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

CONSENT_TEMPLATE, CLIENT_TEMPLATE, CALLBACK_TEMPLATE = (
    "servers/server_connect.html",
    "servers/server_client.html",
    "servers/server_connected.html",
)


@action_page(Proof.NEEDED)
def connect_server(request: PageRequest, name: str) -> HttpResponseBase:
    """Shows the address of the authorization server before the user is redirected to it."""
    owner = request.POST.get("owner", "")[:200]
    _require_owner(request, owner)
    row = _find_server(request, name)
    client = McpOAuthClient.objects.filter(server=row).first()
    try:
        if client is not None and client.grant == Grant.CLIENT_CREDENTIALS:
            require(request.caller, "change_mcpserver")
            mcp_consents.connect_client(row=row, owner=owner, by=actor_of(request.caller))
            messages.success(request, f"{row.name} is connected.")
            return redirect("server", name=row.name)
        url, expires_at = mcp_consents.begin_consent(
            row=row,
            owner=owner,
            user=request.user,
            redirect_uri=request.build_absolute_uri(reverse("oauth-callback")),
        )
    except (Conflict, Malformed, Unavailable) as problem:
        messages.error(
            request, f"{row.name} is not connected. {problem.message}", extra_tags=problem.code
        )
        return redirect("server", name=row.name)
    context = {"row": row, "url": url, "host": Url.parse(url).host.text, "expires_at": expires_at}
    return render(request, CONSENT_TEMPLATE, context)


@page()
def oauth_callback(request: PageRequest) -> HttpResponseBase:
    """The callback of the authorization server. Valid once, for the user who started it."""
    given = {name: str(value)[:8_192] for name, value in request.GET.items()}
    try:
        made = mcp_consents.finish_consent(
            user=request.user, parameters=given, by=actor_of(request.caller)
        )
    except (Conflict, NotFound, Unavailable) as problem:
        return render(request, CALLBACK_TEMPLATE, {"problem": problem.message}, status=400)
    messages.success(request, f"{made.server.name} is connected.")
    return redirect("server", name=made.server.name)


@action_page(Proof.NOT_NEEDED)
def disconnect_server(request: PageRequest, name: str) -> HttpResponseBase:
    owner = request.POST.get("owner", "")[:200]
    _require_owner(request, owner)
    row = _find_server(request, name)
    try:
        mcp_consents.disconnect(row=row, owner=owner, by=actor_of(request.caller))
    except NotFound as problem:
        messages.error(request, problem.message, extra_tags=problem.code)
    else:
        messages.success(request, f"{row.name} is disconnected.")
    return redirect("server", name=row.name)


class ClientForm(ActionForm):
    """The client of a server; `row` is the one that was entered before, if any."""

    row: McpOAuthClient | None
    client_id = forms.CharField(label="Client id", max_length=1_000)
    client_secret = SecretField(label="Client secret", required=False)
    grant = forms.ChoiceField(
        label="How it is allowed",
        choices=(
            (Grant.AUTHORIZATION_CODE, "a person consents (authorization code)"),
            (Grant.CLIENT_CREDENTIALS, "by itself (client credentials)"),
        ),
    )

    def __init__(self, request: PageRequest, server: McpServer) -> None:
        self.server = server
        super().__init__(request, McpOAuthClient.objects.filter(server=server).first())

    def build(self) -> None:
        kept = self.row is not None and self.row.sealed
        words = (
            "One is kept; leave this empty to keep it." if kept else "Empty for a public client."
        )
        self.fields["client_secret"].help_text = f"{words} Never shown again."

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None
        secret = mcp_consents.client_secret(self.row)
        return {"client_id": self.row.client_id, "grant": self.row.grant, "client_secret": secret}

    def act(self, changes: dict[str, Any]) -> Any:
        given = {name: value for name, value in changes.items() if value}
        by = actor_of(self.request.caller)
        return mcp_consents.set_client(row=self.server, client=given, by=by)


@form_page(Proof.NEEDED, "change_mcpserver")
def client_page(request: PageRequest, name: str) -> HttpResponseBase:
    """The OAuth client that an administrator enters for the authorization server."""
    row = _find_server(request, name)
    if request.method == "POST" and request.POST.get("do") == "remove":
        mcp_consents.delete_client(row=row, by=actor_of(request.caller))
        messages.success(request, "The client is removed.")
        return redirect("server", name=row.name)
    form = ClientForm(request, row)
    if not form.save():
        return form.show(CLIENT_TEMPLATE, {"row": row})
    return form.redirect("The client is kept.", "server", name=row.name)


def _find_server(request: PageRequest, name: str) -> McpServer:
    return mcp_servers.find_server(request.user.organization, name)


def _require_owner(request: PageRequest, owner: str) -> None:
    """Users who may view servers may connect them for themselves."""
    own = owner == f"user:{request.caller.name}"
    require(request.caller, "view_mcpserver" if own else "change_mcpserver")
