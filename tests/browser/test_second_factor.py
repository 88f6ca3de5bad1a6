"""A second factor in a real browser: an app's codes, and a key that Chromium itself plays."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from playwright.sync_api import Browser, Page

from tests import crib as cribs
from tests.authenticators import code_of
from tests.browser.conftest import PATIENCE_MS, Complaints, log_in
from tests.browser.test_accessibility import AXE_SCRIPT, violations
from tests.ui.second_factors import with_app
from tools.models import AuthenticatorApp, User

pytestmark = pytest.mark.part("browser")

WIDTHS = [1440, 390]
CONTINUE = "form[action$='/login/second/'] button:not([data-asks-key])"
KEPT = ".actions a[href='/profile/']"  # the recovery codes


@pytest.fixture
def door(
    request: pytest.FixtureRequest, chromium: Browser, crib: cribs.Crib, administrator: User
) -> Iterator[Page]:
    """A browser without a login, under a host name: keys know no addresses."""
    size = {"width": request.param, "height": 900}
    address = crib.url.replace("127.0.0.1", "localhost")
    context = chromium.new_context(base_url=address, viewport=size)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints = Complaints(page)
    yield page
    context.close()
    assert complaints.found == []


def password(page: Page, user: User) -> None:
    page.goto("/login/?next=/profile/")
    log_in(page, user)


def log_out(page: Page) -> None:
    if page.locator(".mobile-menu").is_visible():
        page.locator(".mobile-menu summary").click()
    page.locator("form[action$='/logout/'] button").locator("visible=true").first.click()
    page.locator("[name=password]").wait_for()


def carries_a_key(page: Page) -> None:
    """Chromium plays a key of its own, which has asked for a finger."""
    browser: Any = page.context.new_cdp_session(page)
    browser.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
        "hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    browser.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def axe(page: Page) -> list[str]:
    size = page.viewport_size
    page.evaluate(AXE_SCRIPT)
    found = violations(page)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(size)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("door", WIDTHS, indirect=True)
def test_an_app_is_set_up_and_lets_in(door: Page, administrator: User) -> None:
    password(door, administrator)
    door.locator("a[href$='/factors/app/']").click()
    door.locator("main summary").click()
    secret = door.locator("pre").inner_text()
    door.locator("[name=code]").fill(code_of(secret))
    door.locator("form.app-setup button").click()
    door.locator(".codes").wait_for()
    assert len(re.findall(r"(?:\w{4}-){3}\w{4}", door.locator("main").inner_text())) == 10
    assert axe(door) == []
    door.locator(KEPT).click()
    log_out(door)
    AuthenticatorApp.objects.filter(user=administrator).update(last_step=0)  # the next half minute
    password(door, administrator)
    door.locator("form[action$='/login/second/']").wait_for()
    assert axe(door) == []
    door.locator("[name=code]").fill(code_of(secret))
    door.locator(CONTINUE).click()
    door.locator("#mfa").wait_for()


@pytest.mark.parametrize("door", WIDTHS, indirect=True)
def test_a_security_key_is_set_up_and_lets_in(door: Page, administrator: User) -> None:
    carries_a_key(door)
    password(door, administrator)
    door.locator("a[href$='/factors/key/']").click()
    door.locator("[name=name]").fill("This laptop")
    door.locator("[data-asks-key]").click()
    door.locator(".codes").wait_for()
    door.locator(KEPT).click()
    door.get_by_text("This laptop").first.wait_for()
    log_out(door)
    password(door, administrator)
    door.locator("[data-asks-key]").click()
    door.locator("#mfa").wait_for()


@pytest.mark.parametrize("door", [1440], indirect=True)
def test_a_key_is_proof_again_and_the_form_goes_on(door: Page, administrator: User) -> None:
    carries_a_key(door)
    password(door, administrator)
    door.goto("/profile/factors/key/")
    door.locator("[name=name]").fill("This laptop")
    door.locator("[data-asks-key]").click()
    door.locator(KEPT).click()
    grow_old(administrator)
    door.locator("[name=label]").fill("for a script")
    door.locator("form[action$='/profile/tokens'] button").click()
    door.locator("[data-note=asks-for-proof]").wait_for()
    assert axe(door) == []
    door.locator("[data-asks-key]").click()
    door.locator("#made", has_text="for a script").wait_for()


@pytest.mark.parametrize("door", [390], indirect=True)
def test_a_code_is_typed_without_javascript(
    door: Page, chromium: Browser, administrator: User
) -> None:
    secret, _ = with_app(administrator)
    context = chromium.new_context(java_script_enabled=False, viewport=door.viewport_size)
    door.goto("/login/")
    page = context.new_page()
    page.goto(door.url)
    log_in(page, administrator)
    page.locator("[name=code]").fill(code_of(secret))
    page.locator(CONTINUE).click()
    page.locator("#house").wait_for()
    context.close()


def grow_old(user: User) -> None:
    """Their browsers were last asked an hour ago."""
    for noted in user.browser_sessions.all():
        store = SessionStore(session_key=noted.session_id)
        store["authenticated_at"] -= 3600
        store.save()
