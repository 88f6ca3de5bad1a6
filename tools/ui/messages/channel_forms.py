"""`/channels/new/` and a channel's pages: create, change, rotate the key, delete."""

from typing import Any

from django.contrib import messages as notices
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.sandbox.credentials import MASK
from tools.errors import ToolcribError
from tools.messaging import message_channels
from tools.messaging.message_channels import SECURITIES
from tools.models import MessageChannel, MessageKind
from tools.ui.access import PageRequest, page
from tools.ui.inputs import FormInput, Widget, choices, placed, plain, words
from tools.web.proof import Proof, proof

FORM, KEY, REMOVE = (
    "messages/channel_form.html",
    "messages/channel_key.html",
    "messages/channel_remove.html",
)
_NUMBERS = frozenset({"port", "most_recipients", "most_an_hour"})
_SECRET = frozenset({"password", "url"})
_TO = {
    MessageKind.EMAIL: "Addresses, or domains such as @example.com; nobody where it is empty.",
    MessageKind.INBOX: "Names of people; nobody where it is empty.",
}


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def write_channel(request: PageRequest) -> HttpResponseBase:
    """Create a channel of the kind in the URL. The key is shown once; an inbox has none."""
    require(request.caller, "add_messagechannel")
    kind = _kind(request.GET.get("kind", ""))
    inputs = _inputs(kind, None)
    if request.method != "POST":
        return _form(request, inputs, kind, None)
    try:
        said = _said(inputs, request) | {"kind": kind}
        row, key = message_channels.create_channel(
            organization=request.user.organization, channel=said, by=actor_of(request.caller)
        )
    except ToolcribError as error:
        return _form(request, inputs, kind, None, error)
    if kind == MessageKind.INBOX:
        notices.success(request, f"{row.name} is made.")
        return redirect("channels")
    return render(request, KEY, {"row": row, "key": key, "made": True})


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_channel(request: PageRequest, name: str) -> HttpResponseBase:
    """Change a channel. Empty secret inputs keep their value."""
    require(request.caller, "change_messagechannel")
    row = message_channels.find_channel(request.user.organization, name)
    kind = MessageKind(row.kind)
    inputs = _inputs(kind, row)
    if request.method != "POST":
        return _form(request, inputs, kind, row)
    try:
        changes = _said(inputs, request)
        message_channels.change_channel(row=row, changes=changes, by=actor_of(request.caller))
    except ToolcribError as error:
        return _form(request, inputs, kind, row, error)
    notices.success(request, f"{row.name} is changed.")
    return redirect("channels")


@proof(Proof.NEEDED)
@require_POST
@page
def replace_key(request: PageRequest, name: str) -> HttpResponse:
    require(request.caller, "change_messagechannel")
    row = message_channels.find_channel(request.user.organization, name)
    key = message_channels.replace_key(row=row, by=actor_of(request.caller))
    return render(request, KEY, {"row": row, "key": key, "made": False})


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def remove_channel(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "delete_messagechannel")
    row = message_channels.find_channel(request.user.organization, name)
    if request.method != "POST":
        return render(request, REMOVE, {"row": row})
    message_channels.delete_channel(row=row, by=actor_of(request.caller))
    notices.success(request, f"{row.name} is removed.")
    return redirect("channels")


def _kind(text: str) -> MessageKind:
    return MessageKind(text) if text in MessageKind.values else MessageKind.EMAIL


def _inputs(kind: MessageKind, row: MessageChannel | None) -> list[FormInput]:
    asked = [] if row else [
        FormInput("name", "Name", required=True, help="Letters, digits, '_', '.' and '-'."),
    ]  # fmt: skip
    asked += _place(kind, row)
    if kind in _TO:
        asked.append(FormInput("recipients", "Allowed recipients", Widget.AREA, help=_TO[kind]))
        asked.append(FormInput("most_recipients", "Recipients of a message at most", value="10"))
    asked += [
        FormInput("most_an_hour", "Messages an hour at most", value="60"),
        FormInput("subject_template", "Subject", value="{{ subject }}",
              help="A template; may name subject, body, data, sender, channel, recipients."),
        FormInput("body_template", "Text", Widget.AREA, value="{{ body }}", help="The same."),
        FormInput("enabled", "It is on", Widget.CHECK, value="yes"),
    ]  # fmt: skip
    if row is not None:
        _fill(asked, message_channels.written(row))
    return asked


def _place(kind: MessageKind, row: MessageChannel | None) -> list[FormInput]:
    stays = "Left empty, what is kept stays." if row else ""
    if kind == MessageKind.INBOX:
        return []
    if kind != MessageKind.EMAIL:
        said = f"Kept sealed, and never shown whole again. {stays}".strip()
        return [FormInput("url", "Address", Widget.HIDDEN, required=row is None, help=said)]
    return [
        FormInput("host", "Mail server", required=True),
        FormInput("port", "Port", help="465 for tls, 587 for starttls, where it is empty."),
        FormInput("security", "Security", Widget.SELECT, options=choices(SECURITIES),
              value="starttls", help="none only into networks that the operator opened."),
        FormInput("username", "User name"),
        FormInput("password", "Password", Widget.HIDDEN,
              help=f"Kept sealed, and never shown again. {stays}".strip()),
        FormInput("sender", "Sender", required=True, help="The address that mail comes from."),
    ]  # fmt: skip


def _fill(inputs: list[FormInput], said: dict[str, Any]) -> None:
    """Fill the inputs from a channel, without secrets."""
    for one in inputs:
        value = said.get(one.key, "")
        if one.key in _SECRET:
            one.value = ""
        elif one.widget == Widget.CHECK:
            one.value = "yes" if value else ""
        else:
            one.value = ", ".join(value) if isinstance(value, list) else str(value)


def _said(inputs: list[FormInput], request: PageRequest) -> dict[str, Any]:
    """The submitted values in the API's format; they stay in the form, except secrets."""
    given = plain(request.POST)
    said: dict[str, Any] = {}
    for one in inputs:
        typed = given.get(one.key, "").replace("\r\n", "\n")
        one.value = "" if one.key in _SECRET else typed
        if one.widget == Widget.CHECK:
            said[one.key] = bool(typed)
        elif one.key == "recipients":
            said[one.key] = words(typed.replace("\n", ","))
        elif one.key in _SECRET:
            said |= {one.key: typed} if typed and typed != MASK else {}
        elif one.key in _NUMBERS:
            said |= {one.key: _number(typed.strip())} if typed.strip() else {}
        else:
            said[one.key] = typed.strip()
    return said


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _form(
    request: PageRequest,
    inputs: list[FormInput],
    kind: MessageKind,
    row: MessageChannel | None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    flaws: list[dict[str, str]] = []
    if error is not None:
        told = error.details.get("errors") or [{"field": "", "message": error.message}]
        flaws = placed([one | {"field": one["field"].partition("[")[0]} for one in told], inputs)
    context = {
        "inputs": inputs, "row": row, "kind": kind, "kinds": MessageKind.values,
        "flaws": flaws, "refused": error is not None, "tests_to": kind in _TO,
    }  # fmt: skip
    return render(request, FORM, context, status=error.http_status if error else 200)
