"""Effective groups on the pages: of a tool, and of the catalog's filter."""

import pytest
from django.test import Client

from tests import factories
from tests.tools.snapshots import closed_now
from tests.ui.pages import inline_code, notes, text
from tools.catalog.groups import Through, save_group
from tools.models import Organization
from tools.ui.catalog.tool import MEMBERSHIP_LABELS


@pytest.fixture(autouse=True)
def _tree(organization: Organization) -> None:
    by = factories.actor(organization)
    factories.tool(organization, "ask", group=["reading"])
    factories.tool(organization, "plain")
    save_group(organization=organization, name="library", by=by)
    save_group(organization=organization, name="reading", by=by, parent="library")


def test_a_tools_page_says_where_its_groups_came_from(admin_client: Client) -> None:
    page = admin_client.get("/tools/ask/")
    assert '<span class="tag">library</span> <span class="about" data-note="through">' in text(page)
    assert notes(page)["through"] == [MEMBERSHIP_LABELS[Through.PARENT]]
    assert '<span class="tag">reading</span><' in text(page)
    assert inline_code(page) == []


def test_a_tools_page_says_which_group_is_closed(
    admin_client: Client, organization: Organization
) -> None:
    by, hours = factories.actor(organization), closed_now()
    save_group(organization=organization, name="library", by=by, schedule=hours)
    page = text(admin_client.get("/tools/ask/"))
    (closed,) = notes(page)["group-closed"]
    assert "library" in closed and "reading" not in closed


def test_the_form_offers_effective_groups_and_begins_with_an_own_one(admin_client: Client) -> None:
    form = admin_client.get("/tools/ask/call/").context["form"]
    offered = [name for name, _ in form.fields["group"].choices]
    assert (form["group"].value(), offered[:2]) == (["reading"], ["library", "reading"])


def test_the_catalog_is_filtered_by_a_parent(admin_client: Client) -> None:
    page = admin_client.get("/?group=library")
    assert [tool.name for tool in page.context["listing"].visible_rows] == ["ask"]
    assert '<option value="library" selected>' in text(page)
