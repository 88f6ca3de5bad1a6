"""Concurrency bounds over REST: how many calls may run, wait or be open at once."""

from itertools import product

import pytest

from audit.models import AuditRecord
from tests import factories


@pytest.fixture
def places(agent, organization):
    factories.tool(organization)
    return {
        "max_concurrency": f"/organizations/{organization.slug}",
        "max_queue_depth": f"/organizations/{organization.slug}",
        "max_in_flight": f"/agents/{agent.slug}",
        "tool": "/tools/echo",
    }


BOUNDS = [
    ("max_concurrency", "max_concurrency", "ADMIN.ORGANIZATION_CHANGE"),
    ("max_queue_depth", "max_queue_depth", "ADMIN.ORGANIZATION_CHANGE"),
    ("max_in_flight", "max_in_flight", "ADMIN.AGENT_CHANGE"),
    ("tool", "max_concurrency", "REG.TOOL_UPDATE"),
]


@pytest.mark.parametrize(("place", "name", "code"), BOUNDS)
def test_a_bound_is_set_shown_and_on_record(admin_api, organization, places, place, name, code):
    assert admin_api.patch(places[place], {name: 7}).json()[name] == 7
    assert admin_api.get(places[place]).json()[name] == 7
    row = AuditRecord.objects.filter(organization=organization.slug, code=code).latest(
        "occurred_at"
    )
    assert row.details["after"][name] == 7


def test_a_bound_is_a_whole_number_that_lets_something_through(admin_api, places, subtests):
    for value, (place, name) in product(
        [0, -1, 1_000_001, 2**60, True, "7", 1.5, [], {}], [bound[:2] for bound in BOUNDS]
    ):
        with subtests.test(value=value, place=place, name=name):
            assert admin_api.patch(places[place], {name: value}).status_code == 400


@pytest.mark.parametrize(("place", "name"), [bound[:2] for bound in BOUNDS])
def test_only_a_queue_needs_a_bound(admin_api, places, place, name):
    admin_api.patch(places[place], {name: 7})
    answer = admin_api.patch(places[place], {name: None})
    assert answer.status_code == (400 if name == "max_queue_depth" else 200)


def test_a_bound_leaves_a_tools_version_alone(admin_api, places):
    before = admin_api.get("/tools/echo").json()
    after = admin_api.patch("/tools/echo", {"max_concurrency": 2}).json()
    assert (after["version"], after["digest"]) == (before["version"], before["digest"])
    assert after["max_concurrency"] == 2


def test_an_agent_does_not_raise_its_own_bound(api, places):
    for place, name, _ in BOUNDS:
        assert api.patch(places[place], {name: 1000}).status_code in {403, 404}
