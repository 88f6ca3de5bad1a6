"""Every form that a page sends by POST, as a browser reads it, from the addresses of all pages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.contrib import admin
from django.db import transaction
from django.test import Client
from django.urls import resolve, reverse

from tests import factories
from tests.tools.api.test_authorization_matrix import Side
from tests.ui.addresses import addresses_of
from tests.ui.knowledge.test_knowledge import ELEMENTS, turtle_importer
from tests.ui.pages import fields, text
from tools.accounts import account_actions
from tools.catalog.actions import set_enabled
from tools.models import InboxItem, Organization, User

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_BUTTON = re.compile(r'<button[^>]*\bname="([^"]*)"[^>]*\bvalue="([^"]*)"')
_FIELD = re.compile(
    r'<(?:input(?![^>]*type="(?:hidden|submit)")|select|textarea)\b[^>]*\bname="([^"]*)"'
)
_NUMBER = re.compile(r"[0-9a-f-]{8,}|\d+")
CALLS = ("workspace", "workspace-file")  # pages that make calls, which a worker runs


@dataclass(frozen=True)
class PostForm:
    """`view` is the name of the URL that it is sent to."""

    page: str
    view: str
    address: str
    sent: dict[str, str]
    visible: tuple[str, ...]
    buttons: tuple[tuple[str, str], ...]
    keys: int

    @property
    def kind(self) -> tuple[Any, ...]:
        """Of two forms of one kind, which differ in their rows, one is enough."""
        names = {_NUMBER.sub("#", name) for name in (*self.sent, *self.visible)}
        buttons = tuple(sorted({(name, value.split(" ")[0]) for name, value in self.buttons}))
        return self.view, tuple(sorted(names)), buttons


def forms_on(page: str, name: str, here: str) -> Iterator[PostForm]:
    for attributes, body in _FORM.findall(page):
        if 'method="post"' not in attributes:
            continue
        action = re.search(r'\baction="([^"]+)"', attributes)
        address = action[1].replace("&amp;", "&") if action else here
        view = str(resolve(urlsplit(address).path).view_name)
        buttons = tuple(_BUTTON.findall(body))
        keys = body.count('name="one_time_key"')
        yield PostForm(
            name, view, address, fields(body), tuple(_FIELD.findall(body)), buttons, keys
        )


def every_form(organization: Organization, reader: User, client: Client) -> list[PostForm]:
    """One of each kind, of a reader who may do everything."""
    pages = _pages(organization, reader)
    found: dict[tuple[Any, ...], PostForm] = {}
    for name, address in pages.items():
        with transaction.atomic():
            response = client.get(address)
            page = "" if response.streaming or response.status_code != 200 else text(response)
            transaction.set_rollback(True)
        for form in forms_on(page, name, address):
            found.setdefault(form.kind, form)
    return list(found.values())


def _pages(organization: Organization, reader: User) -> dict[str, str]:
    """Of rows in the states that a form is for."""
    side, by = Side(organization, "axe"), factories.actor(organization)
    turtle_importer(organization)(ELEMENTS.read_text())
    _ = side.confirmation  # makes the tool that is held
    factories.token(reader)
    Client().force_login(reader, backend="tools.accounts.login.login.PeopleBackend")
    InboxItem.objects.create(message=side.message, user=reader)
    off = factories.tool(organization, "off")
    set_enabled(tool=off, enabled=False, by=by, reason="tests")
    twin = organization.agents.get(slug="twin")
    account_actions.change_agent(agent=twin, by=by, active=False)
    pages = addresses_of(side, tool=side.tool.name, agent=side.agent.slug)
    pages |= {"a suspended agent": "/agents/twin/", "a disabled tool": "/tools/off/"}
    for model in admin.site._registry:
        place = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        pages[f"{place}_add"] = reverse(f"{place}_add")
        if row := model._default_manager.first():
            pages[f"{place}_change"] = reverse(f"{place}_change", args=[row.pk])
    pages["a password"] = reverse("admin:auth_user_password_change", args=[side.somebody.pk])
    return {name: address for name, address in pages.items() if name not in CALLS}
