"""A real Chromium before the running product. What it complains about fails the test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests import crib as cribs
from tests import factories
from tools.models import Organization, User

os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # Playwright keeps a loop running

# Long enough for a busy machine: what happens ends a wait, not its time.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("there is no /usr/bin/chromium: the pages were NOT tried in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def place(committed: None, organization: Organization) -> Organization:
    return organization


@pytest.fixture
def administrator(place: Organization) -> User:
    return factories.superuser(place)


@pytest.fixture
def page(
    request: pytest.FixtureRequest, chromium: Browser, crib: cribs.Crib, administrator: User
) -> Iterator[Page]:
    """Logged in, at the catalog. `browser_options` parametrizes the context."""
    options: dict[str, Any] = getattr(request, "param", {})
    context = context_of(administrator, chromium, crib, **options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on(
        "request", lambda sent: sent.url.endswith("/csp-report") and complaints.append(sent.url)
    )
    page.goto("/")
    yield page
    context.close()
    assert complaints == []


def context_of(user: User, chromium: Browser, crib: cribs.Crib, **options: Any) -> BrowserContext:
    """A browser in which the user is logged in, without the form; `enter` uses that."""
    client = Client()
    client.force_login(user, backend="tools.policy.login.PeopleBackend")
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context = chromium.new_context(base_url=crib.url, **options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": crib.url}])
    return context


def enter(page: Page, user: User) -> None:
    page.goto("/login/?next=/")
    page.get_by_label("Name").fill(user.username)
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Catalog").wait_for()
