"""Confirmation rules decide which calls require approval, and an approval is bound to the call's
details."""

from decimal import Decimal

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.tools.approval_requests import approve, approver, call_awaiting_approval
from tools.approvals.confirmation_rules import (
    MOST_RULES,
    change_rule,
    create_rule,
    delete_rule,
    describe_rule,
    merge_changes,
    reach_of_rule,
)
from tools.catalog.registry import registry
from tools.errors import Conflict, Malformed, NotFound
from tools.models import ConfirmationRule, Execution, Organization


def rule(organization, name="r", **wanted):
    return create_rule(
        organization=organization, name=name, wanted=wanted, by=factories.actor(organization)
    )


def status(agent, name="echo", **fields):
    return factories.execution(agent, name, **fields).status


HELD, FREE = "RequiresConfirmation", "Pending"
RULES = {
    "every call": ({"every_call": True}, HELD),
    "this tool": ({"tool": "echo"}, HELD),
    "another tool": ({"tool": "Echo"}, FREE),
    "its group": ({"group": "default"}, HELD),
    "another group": ({"group": "write"}, FREE),
    "a group that is not there": ({"group": "ghost"}, FREE),
    "the price": ({"min_cost": Decimal("0.5")}, HELD),
    "a higher price": ({"min_cost": Decimal("0.500001")}, FREE),
    "tool and group": ({"tool": "echo", "group": "default"}, HELD),
    "tool and another group": ({"tool": "echo", "group": "write"}, FREE),
    "switched off": ({"tool": "echo", "enabled": False}, FREE),
    "first use": ({"first_use": True}, HELD),
    "first use of another": ({"first_use": True, "tool": "other"}, FREE),
}


@pytest.mark.parametrize(("wanted", "expected"), RULES.values(), ids=RULES)
def test_a_rule_fits_when_each_of_its_conditions_does(agent, organization, wanted, expected):
    factories.tool(organization, cost_per_invocation="0.5")
    rule(organization, **wanted)
    assert status(agent) == expected


@pytest.mark.parametrize(("allowed", "expected"), [(True, HELD), (False, FREE)])
def test_a_rule_holds_what_may_have_side_effects(agent, organization, allowed, expected):
    factories.tool(organization, constraints={"allow_side_effects": allowed})
    rule(organization, side_effects=True)
    assert status(agent) == expected


def test_a_rule_for_a_group_holds_the_tools_of_the_groups_below_it(agent, organization):
    factories.tool(organization, group=["default", "low"])
    low = organization.groups.get(name="low")
    low.parent = organization.groups.create(name="high")
    low.save()
    rule(organization, group="high")
    assert status(agent) == HELD


def test_a_rule_for_an_agent_holds_no_other_callers_calls(agent, organization):
    factories.tool(organization)
    rule(organization, agent=agent.slug)
    assert status(agent) == HELD
    assert status(factories.agent(organization)) == FREE


def test_a_rule_of_another_organization_holds_nothing(agent, organization):
    factories.tool(organization)
    rule(factories.organization(f"{organization.slug}-2"), every_call=True)
    assert status(agent) == FREE


@pytest.mark.usefixtures("committed", "crib")
def test_the_first_use_is_over_with_the_first_success(agent, organization):
    factories.tool(organization)
    rule(organization, first_use=True)
    first = approve(call_awaiting_approval(agent), approver(organization)).execution
    until(lambda: Execution.objects.filter(pk=first.pk, status="Success").exists())
    assert status(agent) == FREE
    assert status(factories.agent(organization)) == HELD


def test_a_failure_is_no_first_use(agent, organization):
    factories.tool(organization)
    rule(organization, first_use=True)
    done = call_awaiting_approval(agent).execution
    Execution.objects.filter(pk=done.pk).update(status="Cancelled", completed_at=done.created_at)
    assert status(agent) == HELD


def test_all_reasons_are_given_and_the_strictest_counts(agent, organization):
    factories.tool(organization, requires_confirmation=True)
    rule(organization, name="a", tool="echo")
    rule(organization, name="b", every_call=True, approvals_needed=2)
    confirmation = call_awaiting_approval(agent, require_confirmation=True)
    assert confirmation.approvals_needed == 2
    assert confirmation.reasons == [
        "echo runs only when a person has agreed.",
        "The caller asked for a person's consent.",
        "The rule “a” asks for it: the tool echo.",
        "The rule “b” asks for it: every call.",
    ]


def test_the_hash_is_over_the_canonical_parameters(agent, organization):
    factories.tool(organization, requires_confirmation=True)
    confirmation = call_awaiting_approval(agent)
    again = call_awaiting_approval(agent)
    assert len(confirmation.bound_hash) == 64 and confirmation.bound_hash != again.bound_hash


def test_a_rule_counts_from_the_next_call_on_everywhere(agent, organization):
    factories.tool(organization)
    assert status(agent) == FREE
    before = Organization.objects.get(pk=organization.pk).revision
    made = rule(organization, tool="echo")
    assert Organization.objects.get(pk=organization.pk).revision == before + 1
    assert status(agent) == HELD
    delete_rule(row=made, by=factories.actor(organization))
    assert status(agent) == FREE
    assert Organization.objects.get(pk=organization.pk).revision == before + 2


def test_a_rule_without_any_condition_must_be_meant(organization):
    for wanted in ({}, {"approvals_needed": 2}, {"side_effects": False, "tool": None}):
        with pytest.raises(Malformed) as caught:
            rule(organization, **wanted)
        assert caught.value.code == "rule_without_condition"
    with pytest.raises(Malformed) as caught:
        rule(organization, every_call=True, tool="echo")
    assert caught.value.code == "rule_with_condition"
    assert not ConfirmationRule.objects.filter(organization=organization).exists()


WRONG = [
    {"tool": ""}, {"tool": "*"}, {"tool": "a b"}, {"group": ""}, {"group": "a\u200bb"},
    {"min_cost": Decimal(0)}, {"min_cost": Decimal(-1)}, {"tool": "a", "approvals_needed": 3},
]  # fmt: skip


@pytest.mark.parametrize("wanted", WRONG)
def test_a_rule_that_means_nothing_is_refused(organization, wanted):
    with pytest.raises(Malformed):
        rule(organization, **wanted)


def test_a_rule_names_an_agent_that_is_there(organization):
    stranger = factories.agent(factories.organization(f"{organization.slug}-2"))
    with pytest.raises(NotFound):
        rule(organization, agent=stranger.slug)


def test_a_name_is_given_once_and_there_is_an_end_to_rules(organization):
    rule(organization, tool="echo")
    with pytest.raises(Conflict) as caught:
        rule(organization, tool="other")
    assert caught.value.code == "confirmation_rule_exists"
    ConfirmationRule.objects.bulk_create(
        ConfirmationRule(organization=organization, name=str(number), tool_name="x")
        for number in range(MOST_RULES - 1)
    )
    with pytest.raises(Conflict) as caught:
        rule(organization, name="one more", tool="echo")
    assert caught.value.code == "too_many_confirmation_rules"


def test_a_change_keeps_what_it_does_not_name(organization):
    row = rule(organization, every_call=True, approvals_needed=2)
    wanted = merge_changes(row, {"tool": "echo"})
    row = change_rule(row=row, wanted=wanted, by=factories.actor(organization))
    assert (describe_rule(row)["tool"], row.approvals_needed) == ("echo", 2)
    with pytest.raises(Malformed):  # a rule without conditions needs `every_call`
        change_rule(
            row=row, wanted=merge_changes(row, {"tool": None}), by=factories.actor(organization)
        )


def test_every_change_of_a_rule_is_on_record(organization):
    row = rule(organization, tool="echo", min_cost=Decimal("1.5"))
    change_rule(
        row=row, wanted=merge_changes(row, {"enabled": False}), by=factories.actor(organization)
    )
    delete_rule(row=row, by=factories.actor(organization))
    found = AuditRecord.objects.filter(organization=organization.slug, subject="r").order_by("id")
    assert [one.code for one in found] == [
        "ADMIN.CONFIRMATION_RULE_CHANGE",
        "ADMIN.CONFIRMATION_RULE_CHANGE",
        "ADMIN.CONFIRMATION_RULE_DELETE",
    ]
    made, changed, removed = (one.details for one in found)
    assert (made["before"], made["after"]["min_cost"]) == ({}, "1.5")
    assert changed == {"before": {"enabled": True}, "after": {"enabled": False}}
    assert (removed["before"]["min_cost"], removed["after"]) == ("1.5", {})


def test_a_rule_tells_which_tools_it_touches(organization):
    factories.tool(organization)
    snapshot = registry.snapshot(
        organization.pk, Organization.objects.get(pk=organization.pk).revision
    )
    assert reach_of_rule(rule(organization, tool="echo"), snapshot).tools == ["echo"]
    assert reach_of_rule(rule(organization, name="typo", tool="ecko"), snapshot).count == 0
    assert reach_of_rule(
        rule(organization, name="all", every_call=True), snapshot
    ).count == 1 + len(factories.BUILTIN_NAMES)
