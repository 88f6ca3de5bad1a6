"""The isolation level of a tool: the strictest of all requirements applies."""

from dataclasses import replace
from itertools import product

import pytest

from audit.actions import Actor
from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import attempted
from tests.tools.database import tamper
from tests.tools.snapshots import current_catalog
from tools.accounts import account_actions as policy
from tools.catalog import actions
from tools.catalog.registry import registry
from tools.catalog.sandbox import profiles
from tools.errors import Refused
from tools.execution.admit import admit
from tools.licensing import tiers
from tools.models import LicenseTier, Tool
from tools.policy.isolation_levels import effective_level

LEVELS = ["None", "Standard", "Strict", "Restricted"]
AGENT = Actor("agent", "scribe", "")


def level(organization, name="echo"):
    here = current_catalog(organization)
    return effective_level(here.tools[name], here)


def profile(organization, name="mine", **fields):
    return profiles.create_profile(
        organization=organization,
        profile={"name": name, **fields},
        by=factories.actor(organization),
    )


def demand(organization, minimum):
    policy.set_isolation(
        organization=organization, minimum=minimum, by=factories.actor(organization)
    )


def person(organization):
    return Actor("person", "ada", organization.slug)


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(("definition", "minimum", "own"), [*product(LEVELS, repeat=3)])
def test_the_strongest_demand_counts(organization, definition, minimum, own):
    profile(organization, minimum_isolation=own)
    wanted = "Standard" if definition == "None" else definition
    constraints = {"required_isolation": wanted, "sandbox_profile": "mine"}
    factories.tool(organization, constraints=constraints)
    demand(organization, minimum)
    strongest = max(("Standard", wanted, minimum, own), key=LEVELS.index)
    assert level(organization) == strongest


@pytest.mark.parametrize(("minimum", "expected"), [*zip(LEVELS, LEVELS, strict=True)])
def test_a_built_in_of_level_none_runs_so_only_where_the_organization_says(
    organization, minimum, expected
):
    change_builtin(organization, required_isolation="None")
    demand(organization, minimum)
    assert level(organization, "read_file") == expected


def change_builtin(organization, **constraints):
    tool = actions.find_tool(organization, "read_file")
    wanted = actions.amended(tool.version.definition, {"constraints": constraints})
    actions.update_tool(tool=tool, definition=wanted, by=person(organization))


def test_a_new_organization_demands_standard(organization):
    change_builtin(organization, required_isolation="None")
    assert level(organization, "read_file") == "Standard"


def test_no_custom_tool_runs_at_none_whatever_its_row_says(organization):
    tool = factories.tool(organization)
    demand(organization, "None")
    constraints = tool.version.definition["constraints"] | {"required_isolation": "None"}
    tamper(tool.version, constraints=constraints)
    registry.forget()
    assert level(organization) == "Standard"


def test_a_profile_counts_from_the_next_revision(organization):
    row = profile(organization)
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    assert level(organization) == "Standard"
    profiles.replace_profile(
        row=row,
        profile={"name": "mine", "minimum_isolation": "Strict"},
        by=factories.actor(organization),
    )
    assert level(organization) == "Strict"


WRITERS = [("person", "person", "Standard"), ("agent", "agent", "Restricted"),
           ("system", "product", "Standard"), ("stranger", "import", "Restricted")]  # fmt: skip


@pytest.mark.parametrize(("kind", "origin", "expected"), WRITERS)
def test_code_of_an_unknown_author_is_isolated_most_strongly(organization, kind, origin, expected):
    by = Actor(kind, "somebody", organization.slug)
    tool = actions.register_tool(
        organization=organization, definition=factories.definition(), by=by
    )
    assert (tool.version.origin, level(organization)) == (origin, expected)


def test_a_person_may_say_that_an_agent_wrote_it(organization):
    tool = factories.tool(organization, metadata={"origin": "agent"})
    assert (tool.version.origin, level(organization)) == ("agent", "Restricted")


def test_an_agents_code_stays_an_agents_in_a_persons_hands(organization):
    tool = factories.tool(organization, metadata={"origin": "agent"})
    described = factories.definition(description="Read and found good.")
    actions.update_tool(tool=tool, definition=described, by=person(organization))
    assert level(organization) == "Restricted"
    source = {"source": "def main(parameters):\n    return 'mine'\n"}
    own = factories.definition(implementation=source)
    actions.update_tool(tool=tool, definition=own, by=person(organization))
    assert level(organization) == "Standard"
    actions.restore_version(tool=tool, label="1.0.1", by=person(organization))
    assert level(organization) == "Restricted"


def test_a_built_in_is_the_products_after_any_user_tunes_it(organization):
    change_builtin(organization, max_execution_time="PT5S")
    tool = Tool.objects.get(organization=organization, name="read_file")
    assert (tool.version.origin, tool.version.number) == ("product", 2)


def test_who_wrote_it_is_signed(agent, organization):
    """A row that is edited to name a person as the author has an invalid signature."""
    factories.tool(organization, metadata={"origin": "agent"})
    here = current_catalog(organization)
    tool = here.tools["echo"]
    tools = type(here.tools)({**here.tools, "echo": replace(tool, origin="person")})
    registry._snapshots[organization.pk] = replace(here, tools=tools)
    done = attempted(factories.execution(agent))
    assert (done.status, done.error_code) == ("PermissionDenied", "SIGNATURE_INVALID")


def denied(agent, organization, code):
    """A call is refused at admission and at the claim; nothing ran, and it is recorded."""
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), factories.call("echo", {"text": "x"}))
    assert caught.value.code == code
    records = AuditRecord.objects.filter(organization=organization.slug, code__startswith="TOOL.")
    assert list(records.values_list("code", "reason")) == [("TOOL.DENY", code)]
    return True


@pytest.fixture
def reaching(organization):
    """A tool with network access; its profile can be replaced."""
    row = profile(organization, allow_network=True, allowed_hosts=["example.com"])
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    return row


def test_at_restricted_a_tool_with_a_network_is_refused(agent, organization, reaching, api):
    demand(organization, "Restricted")
    assert denied(agent, organization, "network_refused_when_restricted")
    assert "echo" not in [tool["name"] for tool in api.get("/tools").json()["results"]]


@pytest.mark.parametrize(
    "change", [{"allow_network": False}, {"allow_network": True, "network_when_restricted": True}]
)
def test_at_restricted_a_profile_decides_about_the_network(agent, organization, reaching, change):
    demand(organization, "Restricted")
    profiles.replace_profile(
        row=reaching, profile={"name": "mine", **change}, by=factories.actor(organization)
    )
    assert factories.execution(agent).status == "Pending"


def lower(organization):
    tier = LicenseTier.objects.get(name="Teams")
    tiers.set_tier(organization=organization, tier=tier, by=factories.actor(organization))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda place: demand(place, "Restricted"), "network_refused_when_restricted"),
        (lower, "license_excludes_profiles"),
    ],
    ids=["a level that is raised", "a tier that loses profiles"],
)
def test_what_is_demanded_while_a_call_waits_is_asked_for_again(
    agent, organization, reaching, change, code
):
    execution = factories.execution(agent)
    change(organization)
    done = attempted(execution)
    assert (done.status, done.error_code) == ("PermissionDenied", code)
    assert not AuditRecord.objects.filter(execution_id=done.pk, code="TOOL.START").exists()


def test_a_tier_without_profiles_runs_no_tool_that_names_one(agent, organization, reaching, api):
    lower(organization)
    assert denied(agent, organization, "license_excludes_profiles")
    assert "echo" not in [tool["name"] for tool in api.get("/tools").json()["results"]]
    rows = {row["tool"]: row for row in api.get("/tools/explain").json()["results"]}
    gates = {gate["gate"]: gate["code"] for gate in rows["echo"]["gates"] if not gate["passed"]}
    assert gates == {"sandbox_profile": "license_excludes_profiles"}


def test_a_profile_that_is_not_there_is_not_done_without(agent, organization, reaching):
    type(reaching).objects.filter(pk=reaching.pk).delete()
    registry.forget()
    assert denied(agent, organization, "sandbox_profile_missing")


def test_a_person_sees_the_level_a_tool_really_has(admin_api, organization):
    factories.tool(organization)
    demand(organization, "Strict")
    shown = admin_api.get("/tools/echo").json()
    assert shown["constraints"]["required_isolation"] == "Standard"
    assert (shown["effective_isolation"], shown["origin"]) == ("Strict", "product")
    assert admin_api.put("/tools/echo", shown).json()["version"] == "1.0.0"
    rows = {row["tool"]: row for row in admin_api.get("/tools/explain").json()["results"]}
    assert rows["echo"]["effective_isolation"] == "Strict"
