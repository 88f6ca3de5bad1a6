"""`explain` gives the reason of each refusal and its remedy; test_agreement checks the verdicts."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from tests import factories
from tests.tools.policy import memory_catalogs as made
from tools import metrics
from tools.accounts.callers import caller_of_agent
from tools.accounts.grants.grants import EVERY_TOOL, ToolGrants, grants
from tools.catalog.actions import set_enabled
from tools.catalog.registry import registry
from tools.insight.explain import SKIPPED, Explanation
from tools.insight.remedies import REMEDIES
from tools.licensing.tiers import set_tier
from tools.models import ConfirmationRule, Execution, ToolGroup, ToolStatus
from tools.policy import gates
from tools.policy.gates import Stage
from tools.policy.questions import EffectiveRequest

pytestmark = pytest.mark.django_db
ACCESS = gates.select(Stage.ACCESS, skip=SKIPPED)
GATE_MODULES = list(dict.fromkeys(inspect.getmodule(check.decide) for check in ACCESS))


def codes_in(module: ModuleType) -> Iterator[str]:
    """Every code that a gate of the module can return: the third argument of a refusing verdict."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        refuses = (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "Verdict"
            and len(node.args) > 2
            and isinstance(node.args[1], ast.Constant)
            and node.args[1].value is False
        )
        if refuses:
            yield from _values(node.args[2], tree)


def _values(code: ast.expr, tree: ast.Module) -> Iterator[str]:
    if isinstance(code, ast.Constant):
        yield code.value
    elif isinstance(code, ast.JoinedStr):  # only one gate builds its code, from the tool's status
        yield from (f"tool_{status}" for status in ToolStatus if status != ToolStatus.ACTIVE)
    elif isinstance(code, ast.Name):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == code.id:
                assert isinstance(node.value, ast.Constant)
                yield node.value.value
    else:
        raise AssertionError(f"what code is {ast.dump(code)}?")


@pytest.mark.parametrize("module", GATE_MODULES, ids=lambda module: module.__name__)
def test_every_code_of_a_gate_has_a_remedy(module):
    found = set(codes_in(module))
    assert found and found <= REMEDIES.keys()


def explained(organization, agent, group=None, state=None, everything=True):
    revision = type(organization).objects.get(pk=organization.pk).revision
    snapshot = registry.snapshot(organization.pk, revision)
    return Explanation(
        caller_of_agent(agent), EffectiveRequest.from_options(group, state), snapshot, everything
    )


def row_of(explanation, tool, gate):
    of_tool = explanation.explain(explanation.snapshot.tools[tool])
    return next(row for row in (*explanation.request, *of_tool.rows) if row.gate == gate)


FACTS = [
    # the tool, the request, the gate, the remedy
    ({"group": ["write"]}, {}, "group", "Grant scout the group write, and request it."),
    ({"group": ["read"]}, {}, "group", "Request the group read."),
    ({"group": ["read", "default"]}, {"group": []}, "group",
     "Request one of its groups: default, read."),
    ({"group": []}, {}, "group", 'Put the tool into a group, or grant scout "*" and request it.'),
    ({"available_in_states": ["analysis"]}, {}, "state",
     "Call it in the state analysis; query leads there."),
    ({"available_in_states": ["gone"]}, {}, "state",
     "Call it in the state gone; no tool at hand leads there."),
    ({"available_in_states": []}, {}, "state",
     "Give the tool states in which it is available: now there is none."),
    ({"required_permissions": ["tool.x"]}, {}, "required_permissions",
     "Grant scout the permission tool.x."),
    ({"required_permissions": ["tool.x", "tool.y"]}, {}, "required_permissions",
     "Grant scout the permissions tool.x, tool.y, or the group strong, which carries them."),
    ({}, {"group": ["admin"]}, "granted_groups", "Leave out the group admin, or grant scout it."),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "request_", "gate", "remedy"), FACTS)
def test_a_remedy_is_made_from_the_facts(organization, scout, fields, request_, gate, remedy):
    factories.tool(organization, "query", state="analysis")
    factories.tool(organization, "hidden", state="analysis", group=["write"])
    if "tool.y" in fields.get("required_permissions", ()):
        ToolGroup.objects.create(
            organization=organization, name="strong", permissions=["tool.x", "tool.y"]
        )
    factories.tool(organization, "wanted", **fields)
    row = row_of(explained(organization, scout, **request_), "wanted", gate)
    assert (row.passed, row.remedy) == (False, remedy)


def test_what_is_disabled_can_be_enabled(organization, scout):
    tool = factories.tool(organization, "wanted")
    set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    row = row_of(explained(organization, scout), "wanted", "status")
    assert (row.code, row.remedy) == ("tool_disabled", "Enable the tool.")


def test_the_smallest_tier_that_includes_it_is_named(organization, scout):
    core = type(organization.tier).objects.get(name="Core")
    set_tier(organization=organization, tier=core, by=factories.actor(organization))
    row = row_of(explained(organization, scout, ["*"]), "validate_content", "license")
    assert (row.code, row.remedy) == ("license_excludes_tool", "Teams includes it.")


def test_a_closed_group_says_when_it_opens(organization, scout):
    tool = made.tool("wanted", group=["read"])
    closed = made.group("read", schedule=({"days": ["mon"], "from": "00:00", "to": "00:01"},))
    snapshot = made.snapshot([tool], [closed])
    caller = grants.suppose(made.agent(granted_groups=frozenset(["read"])), EVERY_TOOL)
    row = next(
        row
        for row in Explanation(
            caller, EffectiveRequest.from_options(["read"], None), snapshot, True
        ).gates_of(tool)
        if row.code == "group_closed"
    )
    assert row.remedy == "read opens Monday 00:00 UTC."


def test_a_gate_that_passed_needs_nothing(organization, scout):
    factories.tool(organization, "wanted")
    explanation = explained(organization, scout)
    rows = explanation.explain(explanation.snapshot.tools["wanted"]).rows
    assert all(row.passed and not row.remedy and not row.reason for row in rows)


def test_the_first_gate_that_refuses_is_named(organization, scout):
    factories.tool(organization, "wanted", group=["x"], available_in_states=["y"])
    explanation = explained(organization, scout)
    found = explanation.explain(explanation.snapshot.tools["wanted"])
    assert (found.available, found.refused_by.gate) == (False, "group")


def test_a_call_that_would_be_held_is_not_called_refused(organization, scout):
    factories.tool(organization, "wanted", requires_confirmation=True)
    explanation = explained(organization, scout)
    found = explanation.explain(explanation.snapshot.tools["wanted"])
    assert (found.available, found.refused_by, found.needs_approval) == (True, None, True)
    row = found.rows[-1]
    assert (row.gate, row.code) == ("confirmation", "confirmation_needed")
    assert "wanted runs only when a person has agreed." in row.reason


def test_a_rule_that_holds_calls_is_named_to_administrators_only(organization, scout):
    factories.tool(organization, "wanted")
    ConfirmationRule.objects.create(organization=organization, name="secret rule")
    type(organization).objects.next_revision(organization.pk)
    assert "secret rule" in row_of(explained(organization, scout), "wanted", "confirmation").reason
    explanation = explained(organization, scout, everything=False)
    row = row_of(explanation, "wanted", "confirmation")
    assert not row.passed and "secret rule" not in row.reason


def test_the_suspension_of_an_agent_is_reported_first(organization, scout):
    scout.active = False
    scout.save()
    factories.tool(organization, "wanted")
    explanation = explained(organization, scout)
    assert [row.code for row in explanation.request] == ["agent_suspended", "ok"]
    assert not explanation.explain(explanation.snapshot.tools["wanted"]).available


def test_explaining_counts_spends_and_writes_nothing(organization, scout):
    counted = metrics.escalation_attempts.labels("group")
    before = counted._value.get()
    explanation = explained(organization, scout, ["not-granted"])
    explanation.explain(explanation.snapshot.tools["read_file"])
    assert counted._value.get() == before
    assert not Execution.objects.filter(organization=organization).exists()


# What an agent may be shown ---------------------------------------------------------------------


def explanation_for(tools, groups=(), held=EVERY_TOOL, **caller):
    agent = grants.suppose(made.agent(**caller), held)
    snapshot = made.snapshot(tools, [made.group(name) for name in groups])
    return Explanation(agent, EffectiveRequest.from_options(None, None), snapshot, everything=False)


def test_only_tools_of_its_groups_are_explained_to_an_agent():
    tools = [made.tool("mine", group=["read"]), made.tool("theirs", group=["admin"])]
    found = explanation_for(tools, granted_groups=frozenset(["read"])).tools
    assert [tool.name for tool in found] == ["mine"]


def test_a_tool_granted_by_name_is_explained_to_an_agent():
    tools = [made.tool("mine", group=["ops"]), made.tool("theirs", group=["ops"])]
    held = ToolGrants(every=False, tools=frozenset([tools[0].id]))
    found = explanation_for(tools, held=held, granted_groups=frozenset(["read"]))
    (tool,) = found.tools
    row = next(row for row in found.gates_of(tool) if row.gate == "group")
    assert (tool.name, "ops" in row.reason, "ops" in row.remedy) == ("mine", False, False)
    assert row.remedy == "Ask an administrator for a group of this tool."


def test_a_narrow_token_is_no_window_on_the_other_tools():
    tools = [made.tool("mine"), made.tool("other")]
    caller = {"granted_groups": frozenset(["default"]), "token_tools": frozenset(["mine"])}
    assert [tool.name for tool in explanation_for(tools, **caller).tools] == ["mine"]


def test_an_agent_hears_only_of_leading_tools_that_it_could_call():
    later = made.tool("later", available_in_states=["analysis"])
    hidden = made.tool("hidden", state="analysis", group=["admin"])
    explanation = explanation_for([later, hidden], granted_groups=frozenset(["default"]))
    row = next(row for row in explanation.gates_of(later) if row.gate == "state")
    assert row.remedy == "Call it in the state analysis; no tool at hand leads there."
    shown = replace(hidden, definition=made.tool("hidden", state="analysis").definition)
    explanation = explanation_for([later, shown], granted_groups=frozenset(["default"]))
    row = next(row for row in explanation.gates_of(later) if row.gate == "state")
    assert row.remedy == "Call it in the state analysis; hidden leads there."
