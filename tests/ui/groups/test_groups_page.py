"""The tree of groups, a group's hours, and changing one after a look at whom that hits."""

from datetime import datetime

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.tools.snapshots import closed_now
from tests.ui.conftest import Grant
from tests.ui.pages import fields, inline_code, notes, text
from tools.catalog.groups import save_group
from tools.definitions.values.schedules import build_schedule
from tools.models import Organization, ToolGroup
from tools.ui.groups.week_chart import week_chart

DAY = closed_now()[0]["days"][0]


@pytest.fixture(autouse=True)
def _tree(organization: Organization) -> None:
    by = factories.actor(organization)
    factories.tool(organization, "ask", group=["reading"])
    save_group(organization=organization, name="library", by=by, description="Books.")
    save_group(organization=organization, name="reading", by=by, parent="library")


def sent(**more: str) -> dict[str, str]:
    empty = ("description", "parent", "permissions", "schedule", "max_queue_age_s")
    return dict.fromkeys((*empty, "max_cpu_percent"), "") | {"do": "save"} | more


def row(organization: Organization, name: str) -> ToolGroup:
    return ToolGroup.objects.get(organization=organization, name=name)


def test_groups_stand_below_the_one_they_are_within(admin_client: Client) -> None:
    rows = admin_client.get("/groups/").context["listing"].visible_rows
    found = [(one.name, one.depth, one.tools) for one in rows]
    assert found[found.index(("library", 0, 1)) + 1] == ("reading", 1, 1)


def test_a_group_tells_its_tools_its_agents_and_its_hours(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, "bot", groups=["library"])
    hours = closed_now()
    by = factories.actor(organization)
    save_group(organization=organization, name="library", by=by, schedule=hours)
    page = text(response := admin_client.get("/groups/?group=library"))
    assert "through-parent" in notes(page) and ">bot</a>" in page and "Books." in page
    assert "library" in notes(page)["group-closed"][0] and "12:00-13:00" in page
    assert inline_code(response) == []


def test_many_groups_and_agents_cost_no_more_queries(
    admin_client: Client, organization: Organization, django_assert_max_num_queries: object
) -> None:
    by = factories.actor(organization)
    for number in range(12):
        save_group(organization=organization, name=f"g{number}", by=by, parent="library")
        factories.agent(organization, f"bot{number}", groups=["library"])
    admin_client.get("/groups/")
    with django_assert_max_num_queries(14):  # type: ignore[operator]
        admin_client.get("/groups/?group=library")


def test_a_change_is_looked_at_before_it_is_kept(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, "bot", groups=["reading"])
    change = sent(schedule=f"{DAY} 12:00-13:00", do="preview")
    page = text(admin_client.post("/groups/change/reading", change))
    assert "while-closed" in notes(page) and "1" in notes(page)["lost"][0].split()
    assert row(organization, "reading").schedule == []
    records = AuditRecord.objects.filter(organization=organization.slug, subject="reading")
    assert not records.filter(details__icontains="12:00").exists()


def test_who_has_another_way_loses_nothing(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "both", group=["reading", "other"])
    factories.agent(organization, "bot", groups=["other"])
    change = sent(schedule=f"{DAY} 12:00-13:00", do="preview")
    page = text(admin_client.post("/groups/change/reading", change))
    assert "none-hit" in notes(page)


def test_what_is_kept_is_what_the_form_says(
    admin_client: Client, organization: Organization
) -> None:
    change = sent(
        description="Quiet.", parent="library", permissions="a, b", max_queue_age_s="30",
        schedule="mon-wed,fri 09:00-17:00\n22:00 to 06:00",
    )  # fmt: skip
    response = admin_client.post("/groups/change/reading", change)
    assert response["Location"] == "/groups/?group=reading"
    kept = row(organization, "reading")
    assert kept.schedule[0]["days"] == ["mon", "tue", "wed", "fri"]
    assert kept.schedule[1] == {"from": "22:00", "to": "06:00"}
    assert (kept.permissions, kept.max_queue_age_s) == (["a", "b"], 30.0)
    again = fields(text(admin_client.get("/groups/change/reading")))
    assert admin_client.post("/groups/change/reading", again | {"do": "save"}).status_code == 302
    assert row(organization, "reading").schedule == kept.schedule


def test_a_new_group_is_written_once(admin_client: Client, organization: Organization) -> None:
    assert admin_client.post("/groups/new/", sent(name="a/b")).status_code == 302
    assert row(organization, "a/b").parent is None
    assert admin_client.get("/groups/change/a/b").status_code == 200
    assert admin_client.post("/groups/new/", sent(name="a/b")).status_code == 409


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("change", "noted", "errors"),
    [
        ({"schedule": "sometimes"}, "flaw-schedule", "1"),
        ({"schedule": "xyz 09:00-10:00"}, "flaw-schedule", "days"),
        ({"schedule": "mon 29:00-30:00"}, "flaw-schedule", "from"),
        ({"schedule": "mon 09:00-10:00\n" * 60}, "flaw-schedule", "50"),
        ({"max_cpu_percent": "900"}, "flaw-max_cpu_percent", "100"),
        ({"max_cpu_percent": "9" * 500}, "flaw-max_cpu_percent", ""),
        ({"max_queue_age_s": "soon"}, "flaw-max_queue_age_s", ""),
        ({"description": "x" * 5000}, "flaw-description", "1000"),
        ({"parent": "nowhere"}, "refused", "nowhere"),
        ({"parent": "reading"}, "refused", "reading"),
        ({"permissions": "p" * 200}, "flaw-permissions", "100"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("do", ["save", "preview"])
def test_errors_are_shown_and_nothing_is_saved(
    admin_client: Client,
    organization: Organization,
    change: dict[str, str],
    noted: str,
    errors: str,
    do: str,
) -> None:
    response = admin_client.post("/groups/change/library", sent(**change, do=do))
    assert response.status_code == 400 and errors in notes(response)[noted][0]
    assert row(organization, "library").description == "Books."


def test_a_group_that_is_not_there_is_not_found(admin_client: Client) -> None:
    for address in ("/groups/?group=nowhere", "/groups/change/nowhere"):
        assert admin_client.get(address).status_code == 404


def test_users_cannot_grant_what_they_do_not_hold(
    client_of: Grant, organization: Organization
) -> None:
    client = client_of("tools.change_toolgroup")
    for do in ("preview", "save"):
        response = client.post("/groups/change/library", sent(permissions="secret", do=do))
        assert response.status_code == 403
    assert row(organization, "library").permissions == []


def test_the_impact_on_agents_is_hidden_from_users_who_may_not_view_agents(
    client_of: Grant, organization: Organization
) -> None:
    factories.agent(organization, "bot", groups=["reading"])
    change = sent(schedule=f"{DAY} 12:00-13:00", do="preview")
    page = text(client_of("tools.change_toolgroup").post("/groups/change/reading", change))
    assert "hits-not-shown" in notes(page) and ">ask<" not in page


def test_who_may_not_look_at_agents_sees_none(client_of: Grant, organization: Organization) -> None:
    factories.agent(organization, "hidden-bot", groups=["library"])
    page = text(client_of("tools.view_toolgroup").get("/groups/?group=library"))
    assert "hidden-bot" not in page and ">ask<" not in page
    assert 'href="/groups/change/library"' not in page


def test_a_window_over_midnight_is_drawn_on_two_days() -> None:
    windows = build_schedule([{"days": ["sun"], "from": "22:00", "to": "06:00"}])
    week = week_chart(windows, datetime(2026, 1, 5, 12, 0))
    assert [bar.words for bar in week.bars] == ["Mon 00:00 to 06:00", "Sun 22:00 to 24:00"]


def test_windows_that_touch_are_one_bar_and_none_is_all_of_it() -> None:
    windows = build_schedule([{"from": "08:00", "to": "10:00"}, {"from": "09:00", "to": "12:00"}])
    bars = week_chart(windows, datetime(2026, 1, 5)).bars
    assert len(bars) == 7 and bars[0].words == "Mon 08:00 to 12:00"
    assert week_chart((), datetime(2026, 1, 5)).bars[6].words == "Sun 00:00 to 24:00"
