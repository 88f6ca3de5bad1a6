"""A real Chromium before the running product. What it complains about fails the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests import crib as cribs
from tests import factories
from tools.models import Organization, User

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
    context = chromium.new_context(base_url=crib.url, **options)
    context.set_default_timeout(15_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on(
        "request", lambda sent: sent.url.endswith("/csp-report") and complaints.append(sent.url)
    )
    enter(page, administrator)
    yield page
    context.close()
    assert complaints == []


def enter(page: Page, user: User) -> None:
    page.goto("/login/?next=/")
    page.get_by_label("Name").fill(user.username)
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Catalog").wait_for()
