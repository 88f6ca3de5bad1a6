"""No page makes the browser complain: nothing on the console, nothing that the policy refused."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Complaints
from tests.browser.test_accessibility import SHOWN, World, world  # noqa: F401
from tests.conditions import until

pytestmark = pytest.mark.part("browser")


@pytest.fixture
def complaints(world: World) -> Iterator[Complaints]:  # noqa: F811
    found = Complaints(world.page)
    yield found
    found.end()


def counted(page: Page) -> float:
    """Reports that the server has counted, of whatever kind."""
    text = page.context.request.get("/metrics").text()
    lines = [line for line in text.splitlines() if line.startswith("toolcrib_csp_reports_total")]
    return sum(float(line.split()[-1]) for line in lines)


def test_no_page_makes_the_browser_complain(world: World, complaints: Complaints) -> None:  # noqa: F811
    before = counted(world.page)
    for name in SHOWN:
        world.page.goto(world.address(name))
        world.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        world.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    assert complaints.found == []
    assert counted(world.page) == before


def test_what_the_policy_refuses_is_noticed_and_counted(
    world: World,  # noqa: F811
    complaints: Complaints,
) -> None:
    """Else every page could be fine because nothing is recorded."""
    world.page.goto("/inbox/")
    before = counted(world.page)
    world.page.evaluate("document.body.append(document.createElement('style')); "
                        "document.querySelector('body > style').textContent = 'b {}'")  # fmt: skip
    until(lambda: counted(world.page) > before)
    assert complaints.found
