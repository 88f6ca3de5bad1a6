"""Groups over REST: the hierarchy, hours and bounds, and the origin of each tool's membership."""

from itertools import product

import pytest

from tests import factories
from tests.tools.shapes import check_error
from tests.tools.snapshots import closed_now
from tools.models import Organization, ToolGroup

OFFICE = {"days": ["mon", "fri"], "from": "09:00", "to": "17:00"}
FIELDS = {
    "name", "description", "permissions", "parent", "children", "schedule", "max_queue_age_s",
    "max_cpu_percent", "open", "closed_reason", "tools", "members", "states",
}  # fmt: skip


@pytest.fixture
def tree(admin_api, organization):
    factories.tool(organization, "ask", group=["library/read"])
    factories.tool(organization, "all", group=["library"])
    within = {"parent": "library"}
    assert admin_api.patch("/groups/library/read", within).status_code == 200
    assert admin_api.post("/groups", {"name": "library/write", **within}).status_code == 201
    return organization


def test_a_group_shows_its_place_its_hours_and_its_tools(admin_api, tree):
    shown = admin_api.get("/groups/library").json()
    assert set(shown) == FIELDS
    assert (shown["parent"], shown["children"]) == (None, ["library/read", "library/write"])
    assert shown["tools"] == ["all", "ask"]
    assert shown["members"] == [
        {"tool": "all", "through": "own"}, {"tool": "ask", "through": "parent"},
    ]  # fmt: skip
    assert (shown["open"], shown["closed_reason"]) == (True, None)
    assert admin_api.get("/groups/library/read").json()["parent"] == "library"


def test_neighbours_are_shown_to_whom_they_were_granted(tree):
    reader = factories.api(factories.agent(tree, groups=["library/read"]))
    assert reader.get("/groups/library/read").json()["parent"] is None
    check_error(reader.get("/groups/library"), 404)
    above = factories.api(factories.agent(tree, groups=["library"]))
    shown = above.get("/groups/library").json()
    assert (shown["children"], shown["tools"]) == ([], ["all", "ask"])
    check_error(above.get("/groups/library/read"), 404)
    one = factories.agent(tree, groups=["library", "library/read"], tools=["ask"])
    shown = factories.api(one).get("/groups/library").json()
    assert (shown["children"], shown["tools"]) == (["library/read"], ["ask"])


def test_a_grant_of_a_parent_reaches_what_its_children_hold(tree):
    above = factories.api(factories.agent(tree, groups=["library"]))
    listed = above.get("/tools?group=library").json()["results"]
    assert [one["name"] for one in listed] == ["all", "ask"]
    assert above.execute("ask", {"text": "x"}, group=["library/read"]).status_code == 403
    below = factories.api(factories.agent(tree, groups=["library/read"]))
    assert below.get("/tools?group=library").status_code == 403


def test_a_group_names_the_states_of_its_tools(admin_api, organization):
    states = ["undefined", "research"]
    factories.tool(organization, "ask", group=["g"], state="analysis", available_in_states=states)
    factories.tool(organization, "any", group=["g"])
    assert admin_api.get("/groups/g").json()["states"] == ["analysis", "research", "undefined"]
    assert admin_api.get("/groups/default").json()["states"] == []


def test_a_closed_group_says_why(admin_api, api, organization):
    admin_api.patch("/groups/default", {"schedule": closed_now()})
    shown = api.get("/groups/default").json()
    assert shown["open"] is False
    assert shown["closed_reason"].startswith("The group default is closed at this hour and opens")


def test_what_get_returned_of_a_group_may_be_put(admin_api, organization, tree):
    said = {"schedule": [OFFICE], "max_queue_age_s": 30, "max_cpu_percent": 62.5}
    admin_api.patch("/groups/library/read", said)
    shown = admin_api.get("/groups/library/read").json()
    wanted = {
        name: shown[name]
        for name in (
            "description",
            "permissions",
            "parent",
            "schedule",
            "max_queue_age_s",
            "max_cpu_percent",
        )
    }
    answer = admin_api.put("/groups/library/read", wanted).json()
    assert answer == shown | {name: answer[name] for name in ("open", "closed_reason")}


def test_a_put_says_everything_and_a_patch_what_it_names(admin_api, organization):
    admin_api.post("/groups", {"name": "parent"})
    everything = {
        "description": "d", "permissions": ["p"], "parent": "parent", "schedule": [OFFICE],
        "max_queue_age_s": 30.0, "max_cpu_percent": 50.0,
    }  # fmt: skip
    made = admin_api.post("/groups", {"name": "g", **everything})
    assert made.status_code == 201
    patched = admin_api.patch("/groups/g", {"max_cpu_percent": None}).json()
    assert {name: patched[name] for name in everything} == everything | {"max_cpu_percent": None}
    put = admin_api.put("/groups/g", {"description": "e"}).json()
    assert {name: put[name] for name in everything} == {
        "description": "e", "permissions": [], "parent": None, "schedule": [],
        "max_queue_age_s": None, "max_cpu_percent": None,
    }  # fmt: skip


WRONG = [
    ({"parent": "ghost"}, "parent_unknown"), ({"parent": "g"}, "group_cycle"),
    ({"parent": 5}, None), ({"parent": ""}, None), ({"schedule": None}, None),
    ({"schedule": {}}, "invalid_group"), ({"schedule": [None]}, "invalid_group"),
    ({"schedule": [{"from": "x", "to": "17:00"}]}, "invalid_group"),
    ({"schedule": [OFFICE] * 51}, "invalid_group"), ({"max_queue_age_s": "1"}, "invalid_group"),
    ({"max_queue_age_s": 2**53}, "invalid_group"), ({"max_cpu_percent": 101}, "invalid_group"),
    ({"max_cpu_percent": False}, "invalid_group"), ({"max_cpu_percent": {}}, "invalid_group"),
    ({"open": False}, None), ({"name": "h"}, None),
]  # fmt: skip


def test_a_wrong_group_is_400_and_stays_as_it_is(admin_api, subtests):
    admin_api.post("/groups", {"name": "g", "schedule": [OFFICE]})
    before = admin_api.get("/groups/g").json()
    for method, (body, code) in product(["patch", "put"], WRONG):
        with subtests.test(method=method, body=body, code=code):
            check_error(getattr(admin_api, method)("/groups/g", body), 400, code)
            assert admin_api.get("/groups/g").json() == before


def test_a_parent_is_not_deleted_under_its_children(admin_api, tree):
    body = check_error(admin_api.delete("/groups/library"), 409, "has_dependants")
    assert body["details"]["dependants"]
    admin_api.delete("/tools/all")
    body = check_error(admin_api.delete("/groups/library"), 409, "has_dependants")
    assert body["details"]["dependants"] == ["library/read", "library/write"]
    assert ToolGroup.objects.filter(organization=tree, name="library").exists()


def test_many_groups_cost_no_query_each(admin_api, organization, django_assert_max_num_queries):
    for at in range(30):
        ToolGroup.objects.create(organization=organization, name=f"g{at}")
    Organization.objects.next_revision(organization.pk)
    admin_api.get("/groups")
    with django_assert_max_num_queries(8):
        assert len(admin_api.get("/groups").json()["results"]) > 30


def test_an_organizations_time_zone_is_changed(admin_api, organization):
    place = f"/organizations/{organization.slug}"
    assert admin_api.get(place).json()["time_zone"] == "UTC"
    changed = admin_api.patch(place, {"time_zone": "Australia/Lord_Howe"})
    assert changed.json()["time_zone"] == "Australia/Lord_Howe"
    admin_api.patch("/groups/default", {"schedule": closed_now()})
    assert admin_api.get("/groups/default").json()["closed_reason"].endswith("Australia/Lord_Howe.")


NO_ZONES = [
    "", "Mars/Olympus", "europe/berlin", "../etc/passwd", "America", "+02:00", 5, None,
    "Europe/Berlin ", "posix/UTC", "x" * 300,
]  # fmt: skip


def test_what_is_no_time_zone_is_400(admin_api, organization, subtests):
    for name in NO_ZONES:
        with subtests.test(name=name):
            check_error(
                admin_api.patch(f"/organizations/{organization.slug}", {"time_zone": name}), 400
            )
            assert Organization.objects.get(pk=organization.pk).time_zone == "UTC"


def test_only_a_superuser_sets_the_time_zone(api, organization):
    answer = api.patch(f"/organizations/{organization.slug}", {"time_zone": "Europe/Berlin"})
    check_error(answer, 403)
