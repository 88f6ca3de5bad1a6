"""The page of the workflow: its picture, its table, and what the linter says."""

from html import unescape
from itertools import combinations

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from audit.models import AuditRecord
from tests import factories
from tests.tools import catalogs
from tests.tools.snapshots import moving, snapshot
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, inline_code, notes, text
from tools.catalog.registry import registry
from tools.catalog.workflow.workflow import graph
from tools.insight.workflow_findings import findings_about
from tools.models import Agent, Execution, Organization
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
    marks = {box.hint: box.mark for box in response.context["drawing"].things}
    assert marks["never"] == str(number) and marks["undefined"] == ""
    assert f'id="at-{number}"' in text(response) and f'href="#at-{number}"' in text(response)


WALK = "/workflow/walk/"


@pytest.fixture(autouse=True)
def bot(organization: Organization) -> Agent:
    factories.tool(organization, "begin", group=["flow"], state="busy")
    factories.tool(organization, "finish", group=["flow"], available_in_states=["busy"])
    factories.tool(organization, "other", group=["elsewhere"])
    return factories.agent(organization, "bot", groups=["flow"])


def names(response: object) -> list[str]:
    return [one["tool"].name for one in response.context["open"]]  # type: ignore[attr-defined]


def test_what_leads_on_comes_first_and_what_is_refused_says_why(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot")
    assert names(response) == ["begin"] and notes(response)["leads-to"] == ["busy"]
    shut = {one["tool"].name: one["reason"] for one in response.context["shut"]}
    assert "undefined" in shut["finish"] and "busy" in shut["finish"]  # the states
    assert "elsewhere" in shut["other"]  # its group
    assert inline_code(response) == []


def test_a_step_leads_to_the_next_state_and_back(admin_client: Client) -> None:
    first = admin_client.get(f"{WALK}?agent=bot")
    taken = admin_client.get(first.context["open"][0]["address"])
    assert taken.context["walk"].state == "busy" and "finish" in names(taken)
    assert taken.context["back"] == f"{WALK}?agent=bot"
    assert "busy" in text(taken) and 'data-here="true"' in text(taken)


def test_a_walk_that_cannot_be_made_ends_at_the_first_refusal(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot&step=finish&step=begin")
    walk = response.context["walk"]
    assert walk.stopped and len(walk.steps) == 1 and walk.state == "undefined"
    assert notes(response)["refusal"] == [walk.steps[0].refusal]
    assert {one["address"] for one in response.context["open"]} == {""}


def test_a_start_and_groups_in_the_address_are_walked_from(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot&groups=flow&start=busy")
    assert response.context["walk"].state == "busy" and "finish" in names(response)


def test_groups_that_were_not_granted_refuse_it_all(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot&groups=elsewhere")
    assert names(response) == [] and "request-refused" in notes(response)


def test_nothing_runs_and_nothing_is_written(
    admin_client: Client, organization: Organization
) -> None:
    written = AuditRecord.objects.filter(organization=organization.slug).count()
    admin_client.get(f"{WALK}?agent=bot&step=begin&step=finish")
    assert not Execution.objects.filter(organization=organization).exists()
    assert AuditRecord.objects.filter(organization=organization.slug).count() == written
    assert admin_client.post(WALK).status_code == 405


def test_another_is_walked_as_by_who_may_look_at_agents_alone(client_of: Grant) -> None:
    assert client_of().get(f"{WALK}?agent=bot").status_code == 403
    assert client_of().get(WALK).status_code == 200
    assert (
        client_of("tools.view_agent", "tools.view_tool").get(f"{WALK}?agent=bot").status_code == 200
    )


def test_a_tool_that_one_may_not_know_is_not_there(client_of: Grant) -> None:
    response = client_of().get(f"{WALK}?step=finish")
    assert response.context["walk"].steps[0].refusal == "There is no such tool here."
    assert response.context["drawing"] is None and "elsewhere" not in text(response)


def test_more_steps_cost_no_more_queries(
    admin_client: Client, django_assert_max_num_queries: object
) -> None:
    admin_client.get(f"{WALK}?agent=bot")
    with django_assert_max_num_queries(25):  # type: ignore[operator]
        admin_client.get(f"{WALK}?agent=bot" + "&step=begin" * 60)


ODD = pytest.mark.part("matrices")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("start=%01&groups=%01", 200, marks=ODD),
        pytest.param("yes=x&no=-1", 200, marks=ODD),
        ("step=" + "x" * 900, 200),
        pytest.param("q=%01", 200, marks=ODD),
        pytest.param("start=" + "s" * 900, 200, marks=ODD),
        ("agent=%01", 404),
        ("agent=nobody", 404),
        ("agent=" + "x" * 900, 404),
    ],
)
def test_nothing_odd_is_an_error_of_ours(admin_client: Client, query: str, status: int) -> None:
    assert admin_client.get(f"{WALK}?{query}").status_code == status
