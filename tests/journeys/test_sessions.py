"""A workflow of three states, walked by an agent over real HTTP with a worker at work."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.journeys.client import Http
from tests.tools.shapes import check_error, check_execution

FLOW = (
    ("knowledge-query", "library", "undefined", "analysis"),
    ("complex-analysis", "compute", "analysis", "results"),
    ("reset-workflow", "admin", "results", "undefined"),
)


@pytest.fixture
def walker(crib, committed, organization):
    """Specification S1, 9.3, with the group its reset needs (ruling 1)."""
    for name, group, before, after in FLOW:
        factories.tool(organization, name, group=[group], state=after, available_in_states=[before])
    agent = factories.agent(organization, groups=["library", "compute", "admin"])
    return Http(crib.url, factories.token(agent.service_account))


def opened(http, **body):
    answer = http("POST", "/api/v1/sessions", body)
    assert answer.status_code == 201, answer.json()
    return answer.json()["id"]


def test_a_workflow_goes_round_and_may_begin_again(walker):
    session = opened(walker, group=["library", "compute", "admin"])
    for name, _, before, after in [*FLOW, FLOW[0]]:
        listed = walker("GET", f"/api/v1/tools?session={session}").json()["results"]
        assert [tool["name"] for tool in listed] == [name]
        others = [tool for tool, *_ in FLOW if tool != name]
        for other in others:
            refused = walker.execute(other, {"text": "x"}, session=session)
            check_error(refused, 403, "tool_not_in_state")
        call = walker.execute(name, {"text": "x"}, session=session).json()
        led = check_execution(call, "Success")["session"]
        assert (led["state_before"], led["state_after"]) == (before, after)
    story = walker("GET", f"/api/v1/sessions/{session}").json()
    assert [step["tool"] for step in story["transitions"]] == [
        *(name for name, *_ in FLOW),
        "knowledge-query",
    ]
    times = [step["timestamp"] for step in story["transitions"]]
    assert times == sorted(times)
    assert [step["status"] for step in story["history"]].count("Success") == 4


def test_a_client_cannot_say_where_its_session_is(walker, organization):
    session = opened(walker, group=["library", "compute"])
    lie = walker.execute("complex-analysis", {"text": "x"}, session=session, state="analysis")
    assert check_error(lie, 409, "session_mismatch")["details"]["state"] == "undefined"
    more = walker.execute("reset-workflow", {"text": "x"}, session=session, group=["admin"])
    check_error(more, 409, "session_mismatch")
    records = AuditRecord.objects.filter(organization=organization.slug)
    assert records.filter(code="SESSION.MISMATCH").count() == 2
    assert not records.filter(code="TOOL.START").exists()


def test_a_group_taken_away_ends_the_workflow_at_its_next_step(walker, admin, organization):
    session = opened(walker, group=["library", "compute"])
    call = walker.execute("knowledge-query", {"text": "x"}, session=session).json()
    check_execution(call, "Success")
    slug = admin("GET", "/api/v1/agents").json()["results"][0]["slug"]
    admin("PATCH", f"/api/v1/agents/{slug}", {"groups": ["library"]})
    refused = walker.execute("complex-analysis", {"text": "x"}, session=session)
    check_error(refused, 403, "group_not_granted")
    check_error(walker("GET", f"/api/v1/tools?session={session}"), 403, "group_not_granted")
    assert walker("GET", f"/api/v1/sessions/{session}").json()["state"] == "analysis"
