"""People with a second factor, and how they come in."""

import html
import re
from typing import Any

from django.test import Client

from tests import factories
from tests.authenticators import SoftKey, code_of
from tests.ui.pages import text
from tools.accounts.login import second_factors
from tools.models import AuthenticatorApp, SecurityKey, User

GOOD = "correct horse"


def with_app(user: User) -> tuple[str, list[str]]:
    """The secret, and the recovery codes. A code of a minute ago set it up, so that those from
    now on are unused."""
    secret, by = second_factors.new_app_secret(), factories.actor(user.organization)
    codes = second_factors.add_authenticator_app(
        user=user, secret=secret, code=code_of(secret, later_s=-30), by=by
    )
    AuthenticatorApp.objects.filter(user=user).update(last_step=0)
    return secret, codes


def with_key(client: Client, name: str = "blue") -> SoftKey:
    """Set up on the page, by who is logged in."""
    key = SoftKey()
    options = options_on(client.get("/profile/factors/key/"))
    answer = client.post("/profile/factors/key/", {"name": name, "key": key.create(options)})
    assert SecurityKey.objects.filter(name=name).exists(), text(answer)
    return key


def options_on(page: Any) -> str:
    found = re.search(r'data-options="([^"]*)"', text(page))
    assert found, "the page asks no key"
    return html.unescape(found[1])


def password(user: User, client: Client | None = None, **more: str) -> Client:
    """The first half."""
    client = client or Client()
    client.post("/login/", {"username": user.username, "password": GOOD, **more})
    return client


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session
