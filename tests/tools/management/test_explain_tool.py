import pytest

from tests import factories
from tools.catalog.actions import set_enabled


def failed(ran):
    return {gate["gate"]: gate["code"] for gate in ran.json["gates"] if not gate["passed"]}


@pytest.fixture
def explained(typed, organization, agent):
    def run(tool, *words, of=agent):
        where = ("--agent", of.slug, "--organization", organization.slug)
        return typed("explain_tool", tool, *where, *words)

    return run


def test_every_gate_answers_when_all_say_yes(explained):
    ran = explained("read_file", "--group", "read-only", "--json")
    assert [gate["gate"] for gate in ran.json["gates"]] == [
        *("standing", "granted_groups", "status", "source_open", "group", "group_open", "state"),
        *("object_permission", "required_permissions", "license"),
        *("sandbox_profile", "isolation_license", "isolation", "network"),
        *("load", "rate", "budget", "confirmation"),
    ]
    assert (ran.code, ran.json["available"]) == (0, True)


def test_every_gate_answers_after_one_has_refused(explained, organization):
    tool = factories.tool(
        organization,
        "shut",
        group=["x"],
        available_in_states=["y"],
        required_permissions=["z"],
    )
    set_enabled(tool=tool, enabled=False, by=factories.by(organization))
    assert failed(explained("shut", "--group", "q", "--json")) == {
        "granted_groups": "group_not_granted",
        "status": "tool_disabled",
        "group": "tool_not_in_group",
        "state": "tool_not_in_state",
        "required_permissions": "permission_missing",
    }


@pytest.mark.parametrize(
    ("tools", "active", "gates"),
    [
        (["write_file"], True, {"object_permission": "tool_not_granted"}),
        (["*"], False, {"standing": "agent_suspended"}),
    ],
)
def test_a_tool_that_was_not_granted_and_a_suspended_agent_are_explained_too(
    explained, organization, tools, active, gates
):
    agent = factories.agent(organization, groups=["read-only"], tools=tools)
    agent.active = active
    agent.save()
    ran = explained("read_file", "--group", "read-only", "--json", of=agent)
    assert failed(ran) == gates


def test_the_text_begins_with_the_answer(explained):
    ran = explained("read_file")
    assert ran.code == 0
    assert " may not use read_file (groups: default; state: undefined)." in ran.out
    assert "group                 no      tool_not_in_group" in ran.out


def test_an_unknown_tool_is_refused(explained):
    ran = explained("no_such_tool")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("There is no tool 'no_such_tool' in the organization")


def test_an_agent_must_be_named(typed):
    assert typed("explain_tool", "read_file").code == 2


def test_what_would_change_a_no_is_said(explained, agent):
    ran = explained("read_file")
    assert "What would change it:\n  group: Request the group read-only." in ran.out
    assert f"Leave out the group admin, or grant {agent.slug} it." in (
        explained("read_file", "--group", "admin").out
    )


def test_the_document_has_a_remedy_for_every_no(explained):
    gates = explained("read_file", "--group", "admin", "--state", "x", "--json").json["gates"]
    assert {bool(gate["remedy"]) for gate in gates if not gate["passed"]} == {True}
    assert {gate["remedy"] for gate in gates if gate["passed"]} == {""}


def test_a_call_that_waits_for_a_person_is_told_as_such(explained, organization):
    factories.tool(organization, "grave", requires_confirmation=True)
    ran = explained("grave", "--json")
    assert (ran.json["available"], ran.json["refused_by"], ran.json["held"]) == (True, None, True)
    assert " may, once a person agrees, use grave " in explained("grave").out
