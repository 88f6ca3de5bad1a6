"""A real Chromium before the running product. What it complains about fails the test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests import crib as cribs
from tests import factories
from tools.models import Agent, Organization, User

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


# What HTMX says of a request whose page was left before its answer. Of one that fails the browser
# complains itself.
_LEFT_BEHIND = ("htmx:afterRequest", "htmx:sendError")


class Complaints:
    """What the browser says of a page, and what it reports of it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.found: list[str] = []
        self._handlers: dict[str, Any] = {
            "console": self._record_console_error,
            "pageerror": lambda error: self.found.append(str(error)),
            "request": self._sent,
        }
        for name, handler in self._handlers.items():
            page.on(name, handler)  # type: ignore[call-overload]

    def _record_console_error(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_LEFT_BEHIND):
            self.found.append(f"{self.page.url}: {message.text}")

    def _sent(self, request: Request) -> None:
        if request.url.endswith("/csp-report"):
            self.found.append(f"{self.page.url}: {request.post_data}")

    def end(self) -> None:
        for name, handler in self._handlers.items():
            self.page.remove_listener(name, handler)


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
def caller(place: Organization) -> Agent:
    factories.tool(place)
    return factories.agent(place, groups=["*"])


@pytest.fixture
def page(
    request: pytest.FixtureRequest, chromium: Browser, crib: cribs.Crib, administrator: User
) -> Iterator[Page]:
    """Logged in, at the catalog. `browser_options` parametrizes the context."""
    options: dict[str, Any] = getattr(request, "param", {})
    context = context_of(administrator, chromium, crib, **options)
    page = context.new_page()
    complaints = Complaints(page)
    page.goto("/")
    yield page
    context.close()
    assert complaints.found == []


def context_of(user: User, chromium: Browser, crib: cribs.Crib, **options: Any) -> BrowserContext:
    """A browser in which the user is logged in, without the form; `enter` uses that."""
    client = Client()
    client.force_login(user, backend="tools.accounts.login.login.PeopleBackend")
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context = chromium.new_context(base_url=crib.url, **options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": crib.url}])
    return context


def log_in(page: Page, user: User) -> None:
    """By the form of the page that is open."""
    page.locator("[name=username]").fill(user.username)
    page.locator("[name=password]").fill("correct horse")
    page.locator("form[action$='/login/'] button").click()


def enter(page: Page, user: User) -> None:
    page.goto("/login/?next=/")
    log_in(page, user)
    page.locator("#counts").wait_for()  # of the catalog
