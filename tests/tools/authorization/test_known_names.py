"""Invented names of a client match nothing, are stored once, and evict nothing from memory."""

from tests import factories
from tools.authorization.known_names import drop_unknown_names
from tools.catalog.registry import registry
from tools.models import CatalogNames, Organization, RequestRecord, ToolFilter
from tools.policy.questions import EffectiveRequest


def test_made_up_groups_and_states_share_their_rows(organization, agent, api):
    factories.tool(organization)
    api.get("/tools?group=default&state=made-up-0")
    rows = ToolFilter.objects.count(), CatalogNames.objects.count()
    for number in range(1, 9):
        api.get(f"/tools?group=default&state=made-up-{number}")
        body = {"group": ["default"], "state": f"other-{number}", "options": {"wait_s": 0}}
        api.execute("echo", {"text": "x"}, **body)
        api.get(f"/tools?group=default&group=made-up-{number}&state=made-up-{number}")
    assert (ToolFilter.objects.count(), CatalogNames.objects.count()) == rows
    found = RequestRecord.objects.filter(user_id=agent.service_account.pk)
    assert {"made-up-0", "made-up-8", "other-8"} <= {row.initial_state for row in found}


def test_what_is_left_of_a_request_finds_what_the_request_finds(organization, api):
    tool = factories.tool(organization, "inside", group=["desk"], available_in_states=["inside"])
    factories.tool(organization, "anywhere", group=["desk"], available_in_states=["*"])
    snapshot = registry.snapshot(
        organization.pk, Organization.objects.get(pk=organization.pk).revision
    )
    asked = EffectiveRequest(frozenset({"desk", "ghost"}), "nowhere")
    assert drop_unknown_names(asked, snapshot) == EffectiveRequest(frozenset({"desk"}), "")
    assert (
        drop_unknown_names(EffectiveRequest(frozenset({"*"}), "inside"), snapshot).state == "inside"
    )
    assert tool.name == "inside"
