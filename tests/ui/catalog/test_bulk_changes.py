"""One deed to many tools: what it would do is shown, then done to what is still so."""

import re
from urllib.parse import urlencode

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import codes, notes, preview_fields, text
from tools.catalog.actions import set_enabled
from tools.catalog.groups import save_group
from tools.licensing.tiers import change_tier
from tools.models import LicenseTier, Organization, Tool

NAMES = ["alpha", "beta", "gamma"]


@pytest.fixture
def tools(organization: Organization) -> None:
    factories.tool(organization, "alpha", group=["barn"])
    factories.tool(organization, "beta", group=["barn", "desk"])
    factories.tool(organization, "gamma")


def outlook(client: Client, do: str, *names: str, **given: str) -> str:
    query = {"do": do, "pick": names, **given}
    return text(client.get(f"/catalog/change/?{urlencode(query, doseq=True)}"))


def sets(page: str) -> dict[str, list[str]]:
    """The names under each heading."""
    parts = re.split(r'<h3 id="set-(\w+)">', page)[1:]
    return {
        kind: re.findall(r'<a class="name"[^>]*>([^<]+)<', part)
        for kind, part in zip(parts[::2], parts[1::2], strict=True)
    }


def done(client: Client, page: str) -> str:
    return text(client.post("/catalog/change/", preview_fields(page), follow=True))


def status(organization: Organization, *names: str) -> list[str]:
    rows = Tool.objects.filter(organization=organization, name__in=names)
    return [*rows.order_by("name").values_list("status", flat=True)]


def groups(organization: Organization, name: str) -> list[str] | None:
    row = Tool.objects.select_related("version").get(organization=organization, name=name)
    assert row.version is not None
    return row.version.definition["group"]


@pytest.mark.usefixtures("tools")
def test_the_preview_says_of_each_what_would_change_and_changes_nothing(
    admin_client: Client, organization: Organization
) -> None:
    set_enabled(
        tool=Tool.objects.get(organization=organization, name="beta"),
        enabled=False,
        by=factories.actor(organization),
    )
    Tool.objects.filter(organization=organization, name="gamma").update(status="quarantined")
    Organization.objects.next_revision(organization.pk)
    Tool.objects.filter(organization=organization, name="gamma").update(
        revision=Organization.objects.get(pk=organization.pk).revision
    )
    page = outlook(admin_client, "disable", *NAMES)
    assert sets(page) == {"changes": ["alpha"], "cannot": ["gamma"], "same": ["beta"]}
    said = notes(page)
    assert "quarantined" in said["why-cannot"][0] and "disabled" in said["why-same"][0]
    assert status(organization, *NAMES) == ["active", "disabled", "quarantined"]


@pytest.mark.usefixtures("tools")
def test_what_was_shown_is_done_with_a_record_for_each(
    admin_client: Client, organization: Organization
) -> None:
    page = done(admin_client, outlook(admin_client, "disable", *NAMES, next="/?q=alpha"))
    assert "3" in notes(page)["message-success"][0]
    assert status(organization, *NAMES) == ["disabled"] * 3
    records = AuditRecord.objects.filter(organization=organization.slug, code="REG.TOOL_DISABLE")
    assert sorted(records.values_list("subject", flat=True)) == NAMES


@pytest.mark.usefixtures("tools")
def test_undo_takes_back_what_is_still_as_it_was_left(
    admin_client: Client, organization: Organization
) -> None:
    page = done(admin_client, outlook(admin_client, "disable", *NAMES))
    key = re.search(r'name="key" value="(\w+)"', page)
    assert key is not None
    alpha = Tool.objects.get(organization=organization, name="alpha")
    for enabled in (True, False):
        set_enabled(tool=alpha, enabled=enabled, by=factories.actor(organization))
    page = text(admin_client.post("/catalog/undo", {"key": key[1]}, follow=True))
    assert "2" in notes(page)["message-success"][0] and "alpha" in notes(page)["message-warning"][0]
    assert status(organization, *NAMES) == ["disabled", "active", "active"]
    again = notes(admin_client.post("/catalog/undo", {"key": key[1]}, follow=True))
    assert len(again["message-error"]) == 1 and "message-success" not in again


@pytest.mark.usefixtures("tools")
def test_nothing_is_changed_where_a_tool_has_changed_since_it_was_shown(
    admin_client: Client, organization: Organization
) -> None:
    shown = outlook(admin_client, "put", *NAMES, into="barn")
    assert sets(shown) == {"changes": ["gamma"], "same": ["alpha", "beta"]}
    gamma = Tool.objects.get(organization=organization, name="gamma")
    set_enabled(tool=gamma, enabled=False, by=factories.actor(organization))
    answer = admin_client.post("/catalog/change/", preview_fields(shown))
    assert answer.status_code == 409 and codes(answer) == ["preview_outdated"]
    [line] = notes(answer)["differs"]
    assert line.startswith("gamma")
    assert groups(organization, "gamma") is None
    again = done(admin_client, text(answer))  # what is shown now is written
    assert "message-success" in notes(again) and groups(organization, "gamma") is not None


@pytest.mark.usefixtures("tools")
def test_tools_are_put_into_a_group_and_taken_out_of_it(
    admin_client: Client, organization: Organization
) -> None:
    put = outlook(admin_client, "put", "alpha", "gamma", into="desk")
    assert "barn, desk" in put and "default, desk" in put
    (said,) = notes(done(admin_client, put))["message-success"]
    assert "desk" in said and "2" in said
    assert groups(organization, "alpha") == ["barn", "desk"]
    assert groups(organization, "gamma") == ["default", "desk"]
    take = outlook(admin_client, "take", *NAMES, into="desk")
    assert sets(take) == {"changes": NAMES}
    done(admin_client, take)
    assert [groups(organization, name) for name in NAMES] == [["barn"], ["barn"], ["default"]]


@pytest.mark.usefixtures("tools")
def test_what_narrows_says_how_many_agents_lose_each(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, groups=["barn"])
    factories.agent(organization, groups=["barn", "desk"])
    page = outlook(admin_client, "take", "alpha", "beta", into="barn")
    assert notes(page)["agents-lost"] == ["2", "1"]
    assert any("*" in note for note in notes(page)["note"])
    assert "agents-lost" not in notes(outlook(admin_client, "put", "gamma", into="barn"))


def test_a_parent_is_not_left_by_its_name(admin_client: Client, organization: Organization) -> None:
    by = factories.actor(organization)
    save_group(organization=organization, name="barn", by=by)
    save_group(organization=organization, name="loft", parent="barn", by=by)
    factories.tool(organization, "alpha", group=["loft"])
    page = outlook(admin_client, "take", "alpha", into="barn")
    assert sets(page) == {"cannot": ["alpha"]}
    assert "loft" in notes(page)["why-cannot"][0]


def test_chains_that_call_a_tool_are_named(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "alpha")
    steps = [{"id": "one", "tool_name": "alpha", "parameters": {"text": "x"}}]
    factories.register(
        organization,
        {
            "name": "walk",
            "type": "chain",
            "description": "Calls it.",
            "implementation": {"chain": {"steps": steps}},
        },
    )
    page = outlook(admin_client, "disable", "alpha")
    assert any("walk" in note for note in notes(page)["note"])


@pytest.mark.usefixtures("tools")
def test_all_that_a_search_finds_can_be_meant(
    admin_client: Client, organization: Organization
) -> None:
    page = outlook(admin_client, "disable", all="yes", group="barn")
    assert sets(page) == {"changes": ["alpha", "beta"]}


@pytest.mark.parametrize(("do", "most"), [("disable", 500), ("put", 200)])
def test_more_than_can_be_done_at_once_is_refused_in_words(
    admin_client: Client, do: str, most: int
) -> None:
    named = {"do": do, "into": "barn", "pick": [f"tool_{at}" for at in range(most + 1)]}
    page = text(admin_client.get("/catalog/change/", named, follow=True))
    (said,) = notes(page)["message-error"]
    assert {str(most + 1), str(most)} <= set(said.split())


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    "query", ["do=disable", "do=explode&pick=alpha", "do=put&pick=alpha&into="]
)
def test_what_cannot_be_meant_leads_back_with_the_reason(
    admin_client: Client, organization: Organization, query: str
) -> None:
    response = admin_client.get(f"/catalog/change/?{query}&next=/?q=a", follow=True)
    assert response.redirect_chain == [("/?q=a", 302)]
    assert 'role="status"><span>' in text(response)
    assert status(organization, *NAMES) == ["active"] * 3


@pytest.mark.usefixtures("tools")
def test_tools_of_another_organization_cannot_be_named(
    admin_client: Client, organization: Organization
) -> None:
    other = factories.organization(f"{organization.slug}-other")
    factories.tool(other, "theirs")
    page = outlook(admin_client, "disable", "alpha", "theirs")
    assert sets(page) == {"changes": ["alpha"]} and "1" in notes(page)["missing"][0]
    sent = preview_fields(page)
    assert admin_client.post("/catalog/change/", sent).status_code == 302
    assert status(other, "theirs") == ["active"]
    assert status(organization, "alpha") == ["disabled"]
    forged = sent | {"preview": [sent["preview"][0][:-8]], "tool": ["theirs"]}
    assert admin_client.post("/catalog/change/", forged).status_code == 400
    assert status(other, "theirs") == ["active"]


@pytest.mark.usefixtures("tools")
def test_who_may_not_change_tools_is_refused_and_sees_no_boxes(
    client_of: Grant, organization: Organization
) -> None:
    client = client_of("tools.view_tool")
    assert 'name="pick"' not in text(client.get("/"))
    assert client.get("/catalog/change/?do=disable&pick=alpha").status_code == 403
    assert client.post("/catalog/change/", {"do": "disable", "tool": "x alpha"}).status_code == 403
    assert client.post("/catalog/undo", {"key": "x"}).status_code == 403
    assert status(organization, "alpha") == ["active"]


def test_what_a_person_may_not_see_is_not_there_for_them(
    client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization, "hidden", group=["barn"])
    client = client_of("tools.change_tool")
    response = client.get("/catalog/change/?do=disable&pick=hidden", follow=True)
    assert response.redirect_chain and "message-warning" in notes(response)


def test_a_full_licence_lets_no_more_be_enabled(
    admin_client: Client, organization: Organization
) -> None:
    for name in NAMES:
        factories.tool(organization, name)
    tier = LicenseTier.objects.get(name="Enterprise")
    change_tier(
        tier=tier,
        by=factories.actor(organization),
        max_custom_tools=1,
        custom_sandbox_profiles=False,
    )
    page = outlook(admin_client, "enable", *NAMES)
    assert sets(page) == {"cannot": ["beta", "gamma"], "same": ["alpha"]}
    assert all("Enterprise" in why for why in notes(page)["why-cannot"])


def test_the_lowest_tier_of_built_in_tools_is_set_by_superusers_alone(
    admin_client: Client, client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization, "alpha")
    query = {"do": "tier", "pick": ["read_file", "send_message", "alpha"], "from": "Teams"}
    address = f"/catalog/change/?{urlencode(query, doseq=True)}"
    assert client_of("tools.change_tool", "tools.view_tool").get(address).status_code == 403
    page = text(admin_client.get(address))
    assert sets(page) == {"changes": ["read_file"], "cannot": ["alpha"], "same": ["send_message"]}
    (said,) = notes(done(admin_client, page))["message-success"]
    assert "Teams" in said and "1" in said
    including = [
        tier.name for tier in LicenseTier.objects.all() if tier.includes_builtin("read_file")
    ]
    assert including == ["Teams", "Enterprise"]


def test_the_preview_asks_no_query_per_tool_or_agent(
    admin_client: Client, organization: Organization, django_assert_max_num_queries
) -> None:
    for number in range(30):
        factories.tool(organization, f"many_{number:02}", group=["barn"])
        factories.agent(organization, groups=["barn"])
    names = [f"many_{number:02}" for number in range(30)]
    outlook(admin_client, "disable", *names)
    Organization.objects.next_revision(organization.pk)  # so that grants are read again
    outlook(admin_client, "enable", "many_00")
    with django_assert_max_num_queries(11):  # who it is, the menu, agents, and their grants
        page = outlook(admin_client, "disable", *names)
    assert len(sets(page)["changes"]) == 30
    assert set(notes(page)["agents-lost"]) == {"30"}
