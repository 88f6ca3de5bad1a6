"""Groups and the sources of tools in the administration."""

import json
import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tests import factories
from tests.admin.test_changes import Count, recorded
from tests.admin.test_site import place
from tests.ui.pages import POLICY, inline_code, text
from tools.catalog.groups import save_group
from tools.catalog.sandbox import credentials, profiles
from tools.models import (
    EgressCredential,
    McpServer,
    Organization,
    SandboxProfile,
    ToolGroup,
    ToolService,
)

GROUP_FIELDS = {
    "name": "night", "description": "d", "permissions": "p", "max_queue_age_s": "30",
    "schedule": "22:00-06:00\nmon fri 09:00-17:00\n",
}  # fmt: skip


def group(organization: Organization, name: str) -> ToolGroup:
    return ToolGroup.objects.get(organization=organization, name=name)


def test_a_group_is_written_with_its_hours(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    parent = group(organization, "default")
    admin_client.post(place(ToolGroup, "add"), GROUP_FIELDS | {"parent": parent.pk})
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
    admin_client.post(place(ToolGroup, "add"), GROUP_FIELDS | {"parent": parent.pk})
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
    ("change", "said"),
    [
        ({"schedule": "someday 09:00-17:00"}, "[0].days must be"),
        ({"schedule": "09:00"}, "Line 1 is no window"),
        ({"schedule": "09:00-17:00\nmon"}, "Line 2 is no window"),
        ({"max_cpu_percent": "101"}, "at most 100"),
        ({"max_queue_age_s": "nan"}, "Enter a number"),
    ],
)
def test_what_a_group_cannot_say_is_reported(
    admin_client: Client, organization: Organization, change: dict[str, str], said: str
) -> None:
    page = admin_client.post(place(ToolGroup, "add"), GROUP_FIELDS | change)
    [field], errors = change, page.context["adminform"].form.errors
    assert [*errors] == [field] and said in errors[field][0]
    assert not ToolGroup.objects.filter(organization=organization, name="night").exists()


def test_a_ring_of_groups_is_reported(admin_client: Client, organization: Organization) -> None:
    by = factories.actor(organization)
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
    theirs = save_group(organization=other, name="theirs", by=factories.actor(other))
    assert str(theirs.pk) not in text(admin_client.get(place(ToolGroup, "add")))
    page = admin_client.post(place(ToolGroup, "add"), GROUP_FIELDS | {"parent": theirs.pk})
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
def test_a_source_that_cannot_be_is_reported(
    admin_client: Client, organization: Organization, kind: Any
) -> None:
    page = admin_client.post(place(kind, "add"), {"name": "a b", "default_groups": "a"})
    [said] = page.context["adminform"].form.errors["name"]
    assert said.startswith("may hold only")
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
        organization=organization, name="night", by=factories.actor(organization),
        schedule=[{"from": "22:00", "to": "06:00"}],
    )  # fmt: skip
    page = staff_client("view_toolgroup").get(place(ToolGroup, "change", row.pk))
    assert page.status_code == 200
    assert "22:00" in text(page)


PROFILE_FIELDS = {
    "name": "mine", "backend": "process", "minimum_isolation": "Strict",
    "allowed_hosts": 'example.com\n{"host": "a.example", "methods": ["GET"]}',
    "allow_network": "on", "max_memory_bytes": 64_000_000, "max_cpu_time": "PT2S",
    "max_disk_bytes": 4096, "max_files": 8, "quota_bytes": 65536, "quota_files": 9,
}  # fmt: skip


@pytest.fixture
def profile(organization: Organization) -> SandboxProfile:
    return profiles.create_profile(
        organization=organization, profile={"name": "mine"}, by=factories.actor(organization)
    )


@pytest.fixture
def credential(organization: Organization) -> EgressCredential:
    wanted = {"name": "key", "header": "Authorization", "value": "Bearer c4nary"}
    return credentials.create_credential(
        organization=organization, credential=wanted, by=factories.actor(organization)
    )


def test_a_profile_is_written(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    admin_client.post(place(SandboxProfile, "add"), PROFILE_FIELDS)
    row = SandboxProfile.objects.get(organization=organization)
    assert row.allowed_hosts == ["example.com", {"host": "a.example", "methods": ["GET"]}]
    assert (row.max_cpu_s, row.max_processes, row.minimum_isolation) == (2, None, "Strict")
    assert revision() == 1
    assert recorded(organization, "REG.PROFILE_CREATE").subject == "mine"


def test_saving_what_is_shown_of_a_profile_changes_nothing(
    admin_client: Client, organization: Organization
) -> None:
    admin_client.post(place(SandboxProfile, "add"), PROFILE_FIELDS)
    row = SandboxProfile.objects.get(organization=organization)
    before = profiles.written(row)
    page = admin_client.get(place(SandboxProfile, "change", row.pk))
    form = page.context["adminform"].form
    shown = {name: form[name].value() for name in form.fields if form[name].value()}
    answer = admin_client.post(place(SandboxProfile, "change", row.pk), shown)
    assert answer.status_code == 302, text(answer)
    assert profiles.written(SandboxProfile.objects.get(pk=row.pk)) == before


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"allowed_hosts": "a b"}, "[0].host"),
        ({"allowed_hosts": "{"}, "is not JSON"),
        ({"allowed_paths": "/srv"}, "[0]"),
        ({"max_cpu_time": "soon"}, "must be"),
        ({"backend": "degraded"}, "the backend degraded has no network"),
    ],
)
def test_what_a_profile_cannot_say_is_reported(
    admin_client: Client, organization: Organization, change: dict[str, str], reported: str
) -> None:
    page = admin_client.post(place(SandboxProfile, "add"), PROFILE_FIELDS | change)
    [field], errors = change, page.context["adminform"].form.errors
    assert {*errors} == ({"allow_network", "minimum_isolation"} if field == "backend" else {field})
    assert reported in errors.as_text()
    assert not SandboxProfile.objects.filter(organization=organization).exists()


def test_a_profile_that_tools_name_stays(
    admin_client: Client, organization: Organization, profile: SandboxProfile
) -> None:
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    address = place(SandboxProfile, "delete", profile.pk)
    page = admin_client.post(address, {"post": "yes"}, follow=True)
    [said] = page.context["messages"]
    assert said.level_tag == "error" and "mine" in said.message and "echo" in said.message
    assert SandboxProfile.objects.filter(pk=profile.pk).exists()


def test_a_credential_goes_in_and_is_never_shown(
    admin_client: Client, organization: Organization
) -> None:
    data = {"name": "key", "header": "Authorization", "value": "Bearer c4nary"}
    admin_client.post(place(EgressCredential, "add"), data)
    row = EgressCredential.objects.get(organization=organization)
    refused = admin_client.post(place(EgressCredential, "add"), data | {"header": "Host"})
    for page in (refused, admin_client.get(place(EgressCredential, "change", row.pk))):
        assert "c4nary" not in text(page)
        assert inline_code(page) == []
    record = recorded(organization, "ADMIN.CREDENTIAL_CREATE")
    assert "c4nary" not in json.dumps(record.details)


def test_an_empty_value_leaves_a_credential_as_it_is(
    admin_client: Client, credential: EgressCredential
) -> None:
    before = bytes(credential.sealed)
    address = place(EgressCredential, "change", credential.pk)
    admin_client.post(address, {"header": "X-Key", "value": ""})
    credential.refresh_from_db()
    assert (credential.header, bytes(credential.sealed)) == ("X-Key", before)
    admin_client.post(address, {"header": "X-Key", "value": "other"})
    credential.refresh_from_db()
    assert bytes(credential.sealed) != before


def test_who_may_only_look_sees_no_value(
    staff_client, credential: EgressCredential, profile: SandboxProfile
) -> None:
    client = staff_client("view_egresscredential", "view_sandboxprofile")
    shown = text(client.get(place(EgressCredential, "change", credential.pk)))
    assert "…" in shown and "c4nary" not in shown
    assert "PT5M" in text(client.get(place(SandboxProfile, "change", profile.pk)))
    for row in (credential, profile):
        assert client.post(place(type(row), "change", row.pk), {}).status_code == 403


@pytest.mark.parametrize("model", [SandboxProfile, EgressCredential])
def test_its_pages_obey_the_policy(
    admin_client: Client, profile: SandboxProfile, credential: EgressCredential, model
) -> None:
    row = model.objects.latest("created_at")
    for address in (place(model, "changelist"), place(model, "change", row.pk)):
        page = admin_client.get(address)
        assert (page.status_code, inline_code(page)) == (200, [])
        assert POLICY in page["Content-Security-Policy"]


@pytest.mark.parametrize("model", [SandboxProfile, EgressCredential])
def test_staff_see_their_own_organizations_alone(
    staff_client, profile: SandboxProfile, credential: EgressCredential, model
) -> None:
    elsewhere = factories.organization(f"org-{uuid4().hex[:12]}")
    row = model.objects.latest("created_at")
    model.objects.filter(pk=row.pk).update(organization=elsewhere)
    client = staff_client(f"view_{model._meta.model_name}", f"change_{model._meta.model_name}")
    assert row.name not in text(client.get(place(model, "changelist"))).split("result_list")[-1]
    assert client.get(place(model, "change", row.pk)).status_code == 302


def test_an_organizations_demands_are_changed(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    data = {
        "name": organization.name, "tier": organization.tier.pk,
        "minimum_isolation": "Restricted", "allowed_hosts": "example.com\n*.Example.org",
    }  # fmt: skip
    admin_client.post(place(Organization, "change", organization.pk), data)
    organization.refresh_from_db()
    assert organization.minimum_isolation == "Restricted"
    assert organization.allowed_hosts == ["example.com", "*.example.org"]
    assert revision() == 2
    assert recorded(organization, "ADMIN.ORGANIZATION_CHANGE").subject == organization.slug
