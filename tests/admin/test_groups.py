"""Groups and the sources of tools in the administration."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tests import factories
from tests.admin.test_admin import place
from tests.admin.test_changes import Count, recorded
from tests.ui.pages import POLICY, inline_code, text
from tools.catalog.actions import save_group
from tools.models import McpServer, Organization, ToolGroup, ToolService

WRITTEN = {
    "name": "night", "description": "d", "permissions": "p", "max_queue_age_s": "30",
    "schedule": "22:00-06:00\nmon fri 09:00-17:00\n",
}  # fmt: skip


def group(organization: Organization, name: str) -> ToolGroup:
    return ToolGroup.objects.get(organization=organization, name=name)


def test_a_group_is_written_with_its_hours(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    parent = group(organization, "default")
    admin_client.post(place(ToolGroup, "add"), WRITTEN | {"parent": parent.pk})
    row = group(organization, "night")
    assert row.schedule == [
        {"from": "22:00", "to": "06:00"},
        {"days": ["mon", "fri"], "from": "09:00", "to": "17:00"},
    ]
    assert (row.parent, row.max_queue_age_s, row.max_cpu_percent) == (parent, 30, None)
    assert revision() == 1
    assert recorded(organization, "REG.GROUP_CHANGE").subject == "night"


def test_saving_what_is_shown_of_a_group_changes_nothing(
    admin_client: Client, organization: Organization
) -> None:
    parent = group(organization, "default")
    admin_client.post(place(ToolGroup, "add"), WRITTEN | {"parent": parent.pk})
    row = group(organization, "night")
    address = place(ToolGroup, "change", row.pk)
    form = admin_client.get(address).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields if form[name].value()}
    answer = admin_client.post(address, shown)
    assert answer.status_code == 302, text(answer)
    after = group(organization, "night")
    for field in ("description", "permissions", "parent_id", "schedule", "max_queue_age_s"):
        assert getattr(after, field) == getattr(row, field)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schedule": "someday 09:00-17:00"}, "schedule[0].days: "),
        ({"schedule": "09:00"}, "schedule[0].to: "),
        ({"schedule": "09:00-17:00\nmon"}, "schedule[1].from: "),
        ({"max_cpu_percent": "101"}, "max_cpu_percent: "),
        ({"max_queue_age_s": "nan"}, "max_queue_age_s"),
    ],
)
def test_what_a_group_cannot_say_is_told(
    admin_client: Client, organization: Organization, change: dict[str, str], field: str
) -> None:
    page = admin_client.post(place(ToolGroup, "add"), WRITTEN | change)
    assert field in page.context["adminform"].form.errors.as_text()
    assert not ToolGroup.objects.filter(organization=organization, name="night").exists()


def test_a_ring_of_groups_is_told(admin_client: Client, organization: Organization) -> None:
    by = factories.by(organization)
    above = save_group(organization=organization, name="above", by=by)
    below = save_group(organization=organization, name="below", by=by, parent="above")
    data = {"description": "", "permissions": "", "schedule": "", "parent": str(below.pk)}
    page = admin_client.post(place(ToolGroup, "change", above.pk), data)
    [said] = page.context["adminform"].form.non_field_errors()
    assert re.search(r"above .*below .*above", said)


def test_parents_of_others_are_not_offered(
    admin_client: Client, organization: Organization
) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    theirs = save_group(organization=other, name="theirs", by=factories.by(other))
    assert str(theirs.pk) not in text(admin_client.get(place(ToolGroup, "add")))
    page = admin_client.post(place(ToolGroup, "add"), WRITTEN | {"parent": theirs.pk})
    [flaw] = page.context["adminform"].form.errors.as_data()["parent"]
    assert flaw.code == "invalid_choice"
    assert not ToolGroup.objects.filter(organization=organization, name="night").exists()


@pytest.mark.parametrize("kind", [ToolService, McpServer])
@pytest.mark.parametrize(
    ("said", "groups"),
    [
        ({"default_groups": "fun\nnew"}, ["fun", "new"]),
        ({"default_groups": ""}, []),
        ({"default_groups": "fun", "unnamed": "on"}, None),
    ],
)
def test_a_source_is_written_and_changed(
    admin_client: Client, organization: Organization, kind: Any, said: dict[str, str], groups: Any
) -> None:
    admin_client.post(place(kind, "add"), {"name": "jokes", **said})
    row = kind.objects.get(organization=organization)
    assert (row.name, row.default_groups) == ("jokes", groups)
    assert recorded(organization, "REG.SOURCE_CHANGE").subject == "jokes"
    admin_client.post(place(kind, "change", row.pk), {"default_groups": "other", "name": "x"})
    row.refresh_from_db()
    assert (row.name, row.default_groups) == ("jokes", ["other"])


@pytest.mark.parametrize("kind", [ToolService, McpServer])
def test_a_source_that_cannot_be_is_told(
    admin_client: Client, organization: Organization, kind: Any
) -> None:
    page = admin_client.post(place(kind, "add"), {"name": "a b", "default_groups": "a"})
    [said] = page.context["adminform"].form.non_field_errors()
    assert said.startswith("name: ")
    assert not kind.objects.filter(organization=organization).exists()


@pytest.mark.parametrize("kind", [ToolService, McpServer])
def test_sources_obey_the_policy_and_stay_at_home(
    admin_client: Client, staff_client: Any, organization: Organization, kind: Any
) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    row = kind.objects.create(organization=organization, name="ours")
    theirs = kind.objects.create(organization=other, name="theirs")
    for address in (place(kind, "changelist"), place(kind, "change", row.pk), place(kind, "add")):
        page = admin_client.get(address)
        assert page.status_code == 200
        assert POLICY in page["Content-Security-Policy"]
        assert inline_code(page) == []
    reader = staff_client(f"view_{kind._meta.model_name}")
    assert reader.get(place(kind, "change", row.pk)).status_code == 200
    assert reader.get(place(kind, "change", theirs.pk)).status_code == 302
    assert reader.post(place(kind, "add"), {"name": "x"}).status_code == 403
    assert admin_client.post(place(kind, "delete", row.pk), {"post": "yes"}).status_code == 403


def test_a_group_is_read_by_who_may_look(staff_client: Any, organization: Organization) -> None:
    row = save_group(
        organization=organization, name="night", by=factories.by(organization),
        schedule=[{"from": "22:00", "to": "06:00"}],
    )  # fmt: skip
    page = staff_client("view_toolgroup").get(place(ToolGroup, "change", row.pk))
    assert page.status_code == 200
    assert "22:00" in text(page)
