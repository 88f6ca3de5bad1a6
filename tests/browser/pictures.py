"""The pictures of README and docs, of the product as it is: `make pictures`.

No test of the suite. An organization of a workshop is written into a product of its own, in which a
day's calls were made.
"""

import itertools
import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page

from audit.models import AuditRecord
from audit.records import record_access
from tests import crib as cribs
from tests import factories
from tests.browser.conftest import enter
from tests.conditions import until
from tools.errors import Refused
from tools.execution.perform import perform
from tools.models import Execution, Organization

DOCS = Path(__file__).resolve().parents[2] / "docs"
CALLS = 160
_NOTES = "Return the torque wrench.\n"
_TOOLS = {
    "count_drawers": ("Counts the drawers of a cabinet.", "return len(p['text'])"),
    "weigh_order": (
        "Says what an order weighs, in grams.",
        "return {'grams': 40 * len(p['text'])}",
    ),
    "quote_price": ("Asks the price list.", "raise ValueError('the price list is being printed')"),
}


@pytest.fixture
def workshop(committed: None) -> Organization:
    """With agents that made calls over the last day; some were refused, some failed."""
    place = factories.organization("workshop")
    for name, (about, last) in _TOOLS.items():
        source = f"def main(p):\n    {last}\n"
        factories.tool(place, name, description=about, implementation={"source": source})
    agents = [
        factories.agent(
            place, slug, groups=["default", "read-only"], tools=["*"], description=about
        )
        for slug, about in (("clerk", "Answers mails."), ("smith", "Plans the day's work."))
    ]
    factories.agent(place, "apprentice", groups=["read-only"], description="Reads, for now.")
    factories.workspace_file(place, "notes.txt", _NOTES.encode())
    dice, now = random.Random(7), timezone.now()
    tools = itertools.cycle(["count_drawers", "weigh_order", "read_file", "count_drawers"])
    for number in range(CALLS):
        agent, name = dice.choice(agents), "quote_price" if number % 17 == 5 else next(tools)
        parameters = (
            {"path": "notes.txt"} if name == "read_file" else {"text": f"{number % 9} oak boards"}
        )
        group = ["read-only"] if name == "read_file" else ["default"]
        made = factories.execution(agent, name, group=group, **parameters)
        hours = 23 * (1 - number / CALLS) ** 1.3
        asked_at = now - timedelta(hours=hours, minutes=dice.randrange(40))
        Execution.objects.filter(pk=made.pk).update(created_at=asked_at)  # its end is final
        perform(made.pk)
    return place


@pytest.fixture
def first_calls(committed: None) -> Organization:
    """The two calls of the README: one runs, one is refused."""
    place = factories.organization("first-calls")
    factories.workspace_file(place, "notes.txt", _NOTES.encode())
    reader = factories.agent(place, "reader", groups=["default", "read-only"])
    perform(factories.execution(reader, "read_file", group=["read-only"], path="notes.txt").pk)
    with suppress(Refused):
        factories.execution(reader, "write_file", group=["write"], path="x", content="y")
    return place


def entered(chromium: Browser, crib: cribs.Crib, place: Organization, name: str) -> Page:
    """Before the place's administrator."""
    admin = factories.superuser(place)
    admin.username = name
    admin.save()
    page = chromium.new_page(base_url=crib.url, viewport={"width": 1280, "height": 800})
    enter(page, admin)
    return page


def test_the_audit_list_after_the_first_calls(
    chromium: Browser, crib: cribs.Crib, first_calls: Organization
) -> None:
    page = entered(chromium, crib, first_calls, "grace")
    page.goto("/audit/?code=TOOL.")
    page.screenshot(path=DOCS / "audit.png")


def test_pages_of_a_day_in_a_workshop(
    chromium: Browser, crib: cribs.Crib, workshop: Organization
) -> None:
    page = entered(chromium, crib, workshop, "ada")
    mine = AuditRecord.objects.filter(organization=workshop.slug, code="TOOL.END").order_by("id")
    record = until(lambda: next((one for one in mine[:1] if _signed(one)), None))
    assert record is not None
    failed = Execution.objects.filter(organization=workshop, tool_name="quote_price").latest(
        "created_at"
    )
    for name, address in {
        "home": "/home/",
        "catalog": "/?status=active",
        "who": "/tools/count_drawers/who/",
        "playground": f"/tools/{failed.tool_name}/call/?from={failed.pk}",
        "proof": f"/audit/records/{record.pk}/verify/",
    }.items():
        page.goto(address)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=DOCS / f"{name}.png", full_page=name == "home")


def _signed(record: AuditRecord) -> bool:
    sealed = record_access.seal_position(record.pk)
    return sealed is not None and sealed.signed_at is not None
