"""The page of the workflow: its picture, its table, and what the linter says."""

from html import unescape
from itertools import combinations

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from tests import factories
from tests.tools import catalogs
from tests.tools.snapshots import moving, snapshot
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, notes, text
from tools.catalog.registry import registry
from tools.catalog.workflow.workflow import graph
from tools.insight.workflow_findings import findings_about
from tools.models import Organization
from tools.ui.layout import LayoutBox
from tools.ui.workflow.workflow import EVERY_STATE, MOST_STATES, draw_workflow

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def _workflow(organization: Organization) -> None:
    catalogs.workflow(organization)


@pytest.mark.usefixtures("_workflow")
def test_the_page_shows_states_tools_and_findings(admin_client: Client) -> None:
    page = text(admin_client.get("/workflow/"))
    for part in ("complex-analysis", "silent_reset", EVERY_STATE, 'data-kind="unreachable"'):
        assert part in page
    assert "never-entered" in notes(page) and "<svg" in page


@pytest.mark.usefixtures("_workflow")
def test_groups_in_the_address_are_chosen_and_show_their_dead_end(admin_client: Client) -> None:
    page = text(admin_client.get("/workflow/?group=library&group=compute"))
    assert 'value="compute" checked' in page and 'data-kind="no_tool"' in page
    assert "dead-end" in notes(page) and "text-completion" not in page


@pytest.mark.usefixtures("_workflow")
def test_htmx_is_given_the_part_alone(admin_client: Client) -> None:
    part = text(admin_client.get("/workflow/?group=admin", headers=htmx("flow")))
    assert part.strip().startswith('<div id="flow"') and "<html" not in part


def test_the_page_is_for_people_who_view_tools(client_of: Grant) -> None:
    client = client_of()
    assert client.get("/workflow/").status_code == 403
    assert 'href="/workflow/"' not in text(client.get("/"))
    client = client_of("tools.view_tool")
    assert client.get("/workflow/").status_code == 200
    assert 'href="/workflow/"' in text(client.get("/"))


@pytest.mark.parametrize("address", ["/tools/lost/", "/admin/tools/tool/{}/change/"])
def test_a_tool_is_shown_with_what_is_odd_about_it(
    admin_client: Client, organization: Organization, address: str
) -> None:
    tool = factories.tool(organization, "lost", state="nowhere", available_in_states=["undefined"])
    organization.refresh_from_db()
    found = findings_about(registry.snapshot(organization.pk, organization.revision), "lost")
    [said] = [one.message for one in found if one.code == "unknown_state"]
    assert said in unescape(text(admin_client.get(address.format(tool.pk))))


def test_findings_are_for_people_who_view_every_tool(
    client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization, "lost", state="nowhere", available_in_states=["undefined"])
    client = client_of("tools.execute_tool")
    response = client.get("/tools/lost/")
    assert response.status_code == 200 and "unknown_state" not in text(response)


def test_a_workflow_too_large_to_draw_is_a_table(
    admin_client: Client, organization: Organization
) -> None:
    for number in range(MOST_STATES + 1):
        factories.tool(organization, f"t{number}", state=f"s{number}")
    page = text(admin_client.get("/workflow/"))
    assert 'class="flow"' not in page and "too-many-states" in notes(page) and "t40" in page


def overlap(one: LayoutBox, other: LayoutBox) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


STATES = st.sampled_from(["undefined", "a", "b", "c", "d", "e"])
TOOLS = st.lists(
    st.tuples(st.none() | st.lists(STATES, max_size=3, unique=True), st.none() | STATES),
    max_size=12,
)


@given(TOOLS)
def test_nothing_is_drawn_over_anything_else_or_outside(
    drawn: list[tuple[list[str] | None, str | None]],
) -> None:
    tools = (moving(f"tool-{n}", states, state) for n, (states, state) in enumerate(drawn))
    shown = graph(snapshot(*tools))
    drawing = draw_workflow(shown)
    assert drawing is not None
    boxes = drawing.things + drawing.labels
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(box.x >= 0 and box.x + box.width <= drawing.width for box in boxes)
    assert all(box.y >= 0 and box.y + box.height <= drawing.height for box in boxes)
    assert len(drawing.things) == len(shown.nodes)
    assert len(drawing.lines) == len({(edge.start, edge.end) for edge in shown.edges})


def test_what_is_odd_stands_on_the_picture_with_its_number(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "begin", state="lost", available_in_states=["undefined"])
    factories.tool(organization, "late", available_in_states=["never"], group=["late"])
    response = admin_client.get("/workflow/?group=late&group=default")
    found = [one for kind in response.context["kinds"] for one in kind]
    number = min(one["number"] for one in found if one["finding"].state == "never")
    marks = {box.tooltip: box.mark for box in response.context["drawing"].things}
    assert marks["never"] == str(number) and marks["undefined"] == ""
    assert f'id="at-{number}"' in text(response) and f'href="#at-{number}"' in text(response)
