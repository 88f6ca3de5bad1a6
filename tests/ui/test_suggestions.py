"""Fields that choose a name: beyond a hundred they are searched, and keep what was chosen."""

import re

import pytest
from django.test import Client

from audit.models import AlertRule
from tests import bulk, factories
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, notes, text
from tools.models import Agent, Organization, ToolGroup
from tools.ui.suggestions import MOST_OFFERED


@pytest.fixture
def many(organization: Organization) -> Agent:
    """One more than are offered; the last of them."""
    for at in range(MOST_OFFERED):
        factories.agent(organization, f"bot-{at:03}")
    return factories.agent(organization, "zz")


@pytest.mark.parametrize(
    "address",
    [
        "/explain/?agent=zz",
        "/explain/what-if/?kind=grant&agent=zz&do=give&what=groups&names=default",
        "/playground/?as=zz",
        "/tools/read_file/call/?as=zz",
        "/workflow/walk/?agent=zz",
        "/agent/requests/new/?as=zz",
    ],
)
def test_a_form_keeps_the_agent_that_no_list_would_hold(
    admin_client: Client, many: Agent, address: str
) -> None:
    page = text(admin_client.get(address))
    assert 'value="zz" list="' in page


def test_agents_are_found_while_their_names_are_typed(admin_client: Client, many: Agent) -> None:
    assert text(admin_client.get("/choices/agents/explained/?agent=z")) == (
        '<option value="zz"></option>'
    )
    found = text(admin_client.get("/choices/agents/called-as/?as=bot"))
    assert found.count("<option") == MOST_OFFERED
    assert admin_client.get("/choices/agents/else/?as=bot").status_code == 404


def test_who_may_not_see_agents_is_offered_none(client_of, many: Agent) -> None:  # type: ignore[no-untyped-def]
    for of in ("explained", "called-as"):
        assert text(client_of().get(f"/choices/agents/{of}/?agent=z")) == ""


def test_what_if_keeps_the_tool_that_no_list_would_hold(
    admin_client: Client, organization: Organization, client_of: Grant
) -> None:
    bulk.tools(organization, MOST_OFFERED, groups=1)
    factories.tool(organization, "zz_last")
    address = "/explain/what-if/?kind=tool_groups&tool=zz_last&names=x"
    page = text(admin_client.get(address))
    assert 'id="tool" name="tool" list="tools" value="zz_last"' in page
    assert 'hx-get="/choices/tools/"' in page and '<option value="zz_last"' not in page
    found = text(admin_client.get("/choices/tools/?tool=ZZ_"))
    assert found.strip() == '<option value="zz_last"></option>'
    assert text(admin_client.get("/choices/tools/?tool=")).count("<option") == MOST_OFFERED
    assert client_of().get("/choices/tools/?tool=z").status_code == 403


def test_alerts_are_filtered_by_the_rule_that_no_list_would_hold(
    admin_client: Client, client_of: Grant
) -> None:
    AlertRule.objects.bulk_create(
        AlertRule(name=name, kind="by_actor", severity="info", least=1, window_s=60, values={})
        for name in [*(f"rule-{at:03}" for at in range(MOST_OFFERED)), "zz"]
    )
    page = text(admin_client.get("/audit/alerts/?rule=zz"))
    assert 'hx-get="/audit/alerts/rule-names/"' in page and '<option value="zz"' not in page
    assert re.search(r'<input[^>]* name="rule" value="zz"', page)
    found = text(admin_client.get("/audit/alerts/rule-names/?rule=Z"))
    assert '<option value="zz"></option>' in found
    assert client_of().get("/audit/alerts/rule-names/?rule=z").status_code == 403


def test_the_groups_of_a_workflow_are_bounded_searched_and_kept(
    admin_client: Client, organization: Organization
) -> None:
    names = [*(f"g-{at:03}" for at in range(MOST_OFFERED)), "zz"]
    organization.groups.bulk_create(
        ToolGroup(organization=organization, name=name) for name in names
    )
    Organization.objects.next_revision(organization.pk)
    box = r'name="group" value="([^"]+)"( checked)?'
    page = text(admin_client.get("/workflow/"))
    assert len(re.findall(box, page)) == MOST_OFFERED and "more-groups" in notes(page)
    assert ("zz", "") not in re.findall(box, page)
    page = text(admin_client.get("/workflow/?group=zz"))
    assert ("zz", " checked") in re.findall(box, page)
    query = {"q": "Z", "group": "g-007"}
    part = text(admin_client.get("/workflow/", query, headers=htmx("groups")))
    assert re.findall(box, part) == [("g-007", " checked"), ("zz", "")] and "<html" not in part
