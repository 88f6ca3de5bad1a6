"""Budgets of an agent for a day or a month: reserved when a call is accepted, settled when it
ends."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from audit.models import AuditRecord
from tests import factories
from tests.properties import examples, of_machine
from tests.tools.limits import allowance_fixtures
from tools.catalog.registry import registry
from tools.errors import QuotaExceeded
from tools.execution import answer
from tools.execution.admit import admit
from tools.limits import allowances, budgets
from tools.models import Allowance, AllowanceUse, Execution, Organization, Reservation
from tools.models.ids import new_id
from tools.policy.questions import EffectiveRequest
from tools.worker import reaper

ZERO = Decimal(0)


def call(agent, name="echo", **options):
    return factories.execution(agent, name, **options)


def refusal_of(agent, name="echo"):
    with pytest.raises(QuotaExceeded) as caught:
        call(agent, name)
    return caught.value


def settle(execution, spent):
    budgets.settle(execution.pk, spent=Decimal(spent))


def alerts(agent):
    found = AuditRecord.objects.filter(
        organization=agent.organization.slug, code="BUDGET.ALERT", subject=agent.slug
    )
    return [record.details["percent"] for record in found.order_by("id")]


def test_a_call_holds_its_price_until_it_is_settled(agent, organization):
    allowance_fixtures.priced(organization, "2.50")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    execution = call(agent)
    assert allowance_fixtures.amounts_of(agent) == [(0, 2.5)]
    settle(execution, "2.50")
    assert allowance_fixtures.amounts_of(agent) == [(2.5, 0)]
    assert not Reservation.objects.filter(execution=execution.pk).exists()


@pytest.mark.parametrize("spent", ["0", "0.000001", "1", "7.25"])
def test_what_was_spent_is_what_is_charged(agent, organization, spent):
    allowance_fixtures.priced(organization, "2")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    settle(call(agent), spent)
    assert allowance_fixtures.uses(agent).get().used == Decimal(spent)


def test_settling_twice_charges_once(agent, organization):
    allowance_fixtures.priced(organization, "2")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    execution = call(agent)
    settle(execution, "2"), settle(execution, "2"), budgets.release(execution.pk)
    assert allowance_fixtures.amounts_of(agent) == [(2, 0)]


def test_a_call_that_is_cancelled_before_it_begins_costs_nothing(agent, organization):
    allowance_fixtures.priced(organization, "2")
    allowance_fixtures.bound(agent, ("calls", "1"), budget=allowance_fixtures.budget("10"))
    caller = factories.caller(agent)
    answer.cancel(caller=caller, execution=call(agent))
    assert allowance_fixtures.amounts_of(agent) == [(0, 0), (0, 0)]
    assert call(agent)


def test_a_refused_call_holds_nothing(agent, organization):
    allowance_fixtures.priced(organization, "6")
    allowance_fixtures.bound(agent, ("calls", "5"), budget=allowance_fixtures.budget("10"))
    call(agent)
    refusal = refusal_of(agent)
    assert (refusal.code, refusal.http_status) == ("budget_exceeded", 429)
    assert allowance_fixtures.amounts_of(agent) == [(0, 1), (0, 6)]
    row = Execution.objects.get(pk=refusal.details["execution_id"])
    assert (row.status, row.error_code) == ("PermissionDenied", "budget_exceeded")


def test_a_first_call_that_costs_more_than_everything_is_refused(agent, organization):
    allowance_fixtures.priced(organization, "11")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    assert refusal_of(agent).details["used"] == "0"
    assert not allowance_fixtures.uses(agent).exists()


def test_what_costs_nothing_fits_into_a_budget_that_is_used_up(agent, organization):
    allowance_fixtures.priced(organization, "10", "dear")
    allowance_fixtures.priced(organization, "0", "free")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    settle(call(agent, "dear"), "15")
    assert call(agent, "free")
    assert refusal_of(agent, "dear").details["used"] == "15"


def test_an_exact_fit_is_a_fit(agent, organization):
    allowance_fixtures.priced(organization, "0.1")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("0.3"))
    assert call(agent) and call(agent) and call(agent)
    assert refusal_of(agent).details["used"] == "0.3"


def test_a_quota_counts_calls_of_every_outcome_but_a_refusal(agent, organization):
    factories.tool(organization)
    allowance_fixtures.bound(agent, ("calls", "3"))
    settle(call(agent), "0")
    budgets.release(call(agent).pk)
    assert allowance_fixtures.amounts_of(agent) == [(1, 0)]


def test_a_quota_of_one_tool_leaves_the_others_alone(agent, organization):
    factories.tool(organization)
    factories.tool(organization, "other")
    allowance_fixtures.bound(agent, ("calls", "1", "echo"))
    call(agent)
    refusal = refusal_of(agent)
    assert (refusal.code, refusal.details["tool"]) == ("quota_exceeded", "echo")
    assert (refusal.details["limit"], refusal.details["used"]) == (1, 1)
    assert "cheaper" not in refusal.details
    assert call(agent, "other")


def test_the_refusal_speaks_of_what_lasts_longest(agent, organization):
    factories.tool(organization)
    allowance_fixtures.bound(agent, ("calls", "0", None, "month"), ("calls", "0", None, "day"))
    refusal = refusal_of(agent)
    assert refusal.details["period"] == "month"
    assert 1 <= refusal.details["resets_in_s"] <= 31 * 86_400


def test_the_refusal_names_cheaper_tools_the_caller_may_use(agent, organization):
    allowance_fixtures.priced(organization, "9", group=["read-only"])
    for name, cost, group in (
        ("c1", "1", "read-only"), ("c3", "3", "read-only"), ("c2", "2", "read-only"),
        ("c0", "0.5", "read-only"), ("as-dear", "9", "read-only"), ("c-other", "1", "write"),
        ("hidden", "0.1", "secret"), ("too-dear", "5", "read-only"),
    ):  # fmt: skip
        allowance_fixtures.priced(organization, cost, name, group=[group])
    allowance_fixtures.priced(
        organization, "0.2", "not-mine", group=["read-only"], required_permissions=["p"]
    )
    allowance_fixtures.bound(agent, ("calls", "50"), budget=allowance_fixtures.budget("4"))
    with pytest.raises(QuotaExceeded) as caught:
        admit(
            factories.caller(agent),
            factories.call("echo", {"text": "x"}, group=["read-only", "write"]),
        )
    # read_file and validate_content are in the group too, and are free.
    assert caught.value.details["cheaper"] == ["read_file", "validate_content", "c0"]
    assert "c0" in caught.value.message


def test_without_allowances_nothing_is_asked(agent, organization):
    tool = factories.tool(organization)
    caller = factories.caller(agent)
    snapshot = allowance_fixtures.snapshot_of(caller)
    with CaptureQueriesContext(connection) as captured:
        allowance_fixtures.reserve(
            new_id(), caller=caller, tool=snapshot.tools[tool.name],
            asked=EffectiveRequest.from_options(None, None),
            snapshot=snapshot, cost=ZERO,
        )  # fmt: skip
    assert not captured.captured_queries


def test_a_new_day_begins_with_nothing_used(agent, organization):
    factories.tool(organization)
    allowance_fixtures.bound(agent, ("calls", "1"))
    settle(call(agent), "0")
    refusal_of(agent)
    allowance_fixtures.uses(agent).update(starts_on=F("starts_on") - timedelta(days=1))
    assert call(agent)
    assert allowance_fixtures.amounts_of(agent) == [(0, 1)]


def test_a_call_that_ends_tomorrow_is_charged_to_the_day_it_was_accepted(agent, organization):
    factories.tool(organization)
    allowance_fixtures.bound(agent, ("calls", "5"))
    execution = call(agent)
    allowance_fixtures.uses(agent).update(starts_on=F("starts_on") - timedelta(days=1))
    settle(execution, "0")
    assert allowance_fixtures.uses(agent).get().used == 1
    assert allowance_fixtures.amounts_of(agent) == [(0, 0)]


BERLIN = ZoneInfo("Europe/Berlin")
DAYS = [
    ("2026-03-28T22:59:59", "2026-03-28", "2026-03-28T23:00:00"),
    ("2026-03-28T23:00:00", "2026-03-29", "2026-03-29T22:00:00"),  # 23 hours
    ("2026-10-24T22:00:00", "2026-10-25", "2026-10-25T23:00:00"),  # 25 hours
    ("2026-12-31T23:00:00", "2027-01-01", "2027-01-01T23:00:00"),
]


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "at", "first", "end"),
    [
        *(("day", *row) for row in DAYS),
        ("month", "2026-03-15T12:00:00", "2026-03-01", "2026-03-31T22:00:00"),
        ("month", "2026-01-31T22:59:59", "2026-01-01", "2026-01-31T23:00:00"),
        ("month", "2026-01-31T23:00:00", "2026-02-01", "2026-02-28T23:00:00"),
        ("month", "2026-12-31T12:00:00", "2026-12-01", "2026-12-31T23:00:00"),
    ],
)
def test_a_period_goes_from_its_first_local_midnight_to_the_next(period, at, first, end):
    assert allowances.starts_on(period, BERLIN, moment(at)).isoformat() == first
    assert allowances.ends_at(period, BERLIN, moment(at)) == moment(end)


def test_where_clocks_skip_midnight_the_day_begins_when_they_do():
    santiago = ZoneInfo("America/Santiago")  # 2026-09-06 begins at 01:00
    at = moment("2026-09-06T03:59:59")
    assert allowances.starts_on("day", santiago, at).isoformat() == "2026-09-05"
    assert allowances.ends_at("day", santiago, at) == moment("2026-09-06T04:00:00")


def test_the_day_is_the_organizations(agent, organization):
    factories.tool(organization)
    Organization.objects.filter(pk=organization.pk).update(time_zone="Pacific/Kiritimati")
    allowance_fixtures.bound(agent, ("calls", "5"))
    call(agent)
    far_east = datetime.now(ZoneInfo("Pacific/Kiritimati")).date()
    assert allowance_fixtures.uses(agent).get().starts_on == far_east


def test_an_alert_is_given_at_80_and_at_100_percent_once(agent, organization):
    allowance_fixtures.priced(organization, "1")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    seen = []
    for _ in range(10):
        settle(call(agent), "1")
        seen.append(alerts(agent))
    assert [len(found) for found in seen] == [0] * 7 + [1, 1, 2]
    assert seen[-1] == [80, 100]


def test_who_passes_both_thresholds_at_once_gives_both_alerts(agent, organization):
    allowance_fixtures.priced(organization, "1")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    execution, other = call(agent), call(agent)
    settle(execution, "12"), settle(other, "1")
    assert alerts(agent) == [80, 100]


def test_an_amount_that_was_raised_is_alerted_on_again(agent, organization):
    allowance_fixtures.priced(organization, "8")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    settle(call(agent), "8")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("20"))
    settle(call(agent), "8")
    assert alerts(agent) == [80, 80]


def test_an_alert_says_what_is_used_of_what(agent, organization):
    allowance_fixtures.priced(organization, "1")
    allowance_fixtures.bound(agent, ("calls", "1", "echo", "month"))
    settle(call(agent), "1")
    found = AuditRecord.objects.filter(code="BUDGET.ALERT", subject=agent.slug).latest("id")
    assert (found.actor_kind, found.reason) == ("system", "100_percent")
    wanted = {"kind": "calls", "tool": "echo", "period": "month", "limit": 1, "used": 1}
    assert wanted.items() <= found.details.items()


def test_a_call_settles_though_its_allowance_is_gone(agent, organization):
    allowance_fixtures.priced(organization, "1")
    allowance_fixtures.bound(agent, ("calls", "5"), budget=allowance_fixtures.budget("10"))
    execution = call(agent)
    allowance_fixtures.bound(agent, budget=None)
    settle(execution, "1")
    assert allowance_fixtures.amounts_of(agent) == [(1, 0)]


def test_a_call_settles_though_its_allowance_became_smaller(agent, organization):
    allowance_fixtures.priced(organization, "4")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    execution = call(agent)
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("1"))
    settle(execution, "4")
    assert allowance_fixtures.amounts_of(agent) == [(4, 0)]
    assert refusal_of(agent).details["limit"] == "1"


@pytest.mark.parametrize(
    ("before", "now"), [("5", "0"), ("0", None)], ids=["smaller since", "gone since"]
)
def test_what_is_bound_now_counts_though_the_catalog_is_behind(agent, organization, before, now):
    factories.tool(organization)
    allowance_fixtures.bound(agent, ("calls", before))
    caller = factories.caller(agent)
    allowance_fixtures.snapshot_of(caller)  # fills the cache of this process
    allowance = Allowance.objects.filter(agent=agent)
    _ = allowance.update(amount=now) if now else allowance.delete()
    with pytest.raises(QuotaExceeded) if now else nullcontext():
        assert admit(caller, factories.call("echo", {"text": "x"}))


@pytest.mark.parametrize(("delivery", "used"), [("external", 2), ("pure", 0)])
def test_what_a_lost_worker_left_is_settled_when_the_call_ends(agent, organization, delivery, used):
    allowance_fixtures.priced(organization, "2", delivery=delivery)
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    execution = call(agent)
    Execution.objects.filter(pk=execution.pk).update(
        status="Running", fence=1, attempt=1, worker="gone", started_at=Now(),
        lease_until=Now() - timedelta(minutes=1),
    )  # fmt: skip
    reaper.reap()
    assert allowance_fixtures.amounts_of(agent) == [(used, 2 - used)]  # a pure call is requeued


@pytest.mark.usefixtures("without_workers")
def test_calls_at_once_never_overspend(agent, organization):
    allowance_fixtures.priced(organization, "1")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("10"))
    outcomes, faults = allowance_fixtures.ask_at_once(factories.caller(agent), ["echo"] * 64)
    assert not faults
    assert (outcomes.count("accepted"), outcomes.count("budget_exceeded")) == (10, 54)
    assert allowance_fixtures.amounts_of(agent) == [(0, 10)]
    accepted = Execution.objects.filter(organization=organization, status="Pending")
    assert accepted.count() == 10


@pytest.mark.usefixtures("without_workers")
def test_calls_that_share_several_allowances_never_lock_each_other_out(agent, organization):
    for name in ("echo", "other"):
        allowance_fixtures.priced(organization, "1", name)
    allowance_fixtures.bound(
        agent, ("calls", "40", "echo"), ("calls", "40", "other"), ("calls", "30"),
        ("calls", "30", None, "month"), budget=allowance_fixtures.budget("20"),
    )  # fmt: skip
    outcomes, faults = allowance_fixtures.ask_at_once(
        factories.caller(agent), ["echo", "other"] * 24
    )
    assert not faults
    assert outcomes.count("accepted") == 20
    assert sum(held for _, held in allowance_fixtures.amounts_of(agent)) == 20 * 4


@pytest.mark.usefixtures("committed")
def test_ends_at_once_are_each_charged_once(agent, organization):
    allowance_fixtures.priced(organization, "1")
    allowance_fixtures.bound(agent, ("calls", "50"), budget=allowance_fixtures.budget("50"))
    executions = [call(agent) for _ in range(12)]
    assert not allowance_fixtures.at_once([lambda e=e: settle(e, "1") for e in executions] * 3)
    assert allowance_fixtures.amounts_of(agent) == [(12, 0), (12, 0)]


AMOUNTS = st.decimals("0", "9", places=6)
KINDS = st.sampled_from(["calls", "cost"])
TOOLS = st.sampled_from([None, "echo", "other"])
PERIODS = st.sampled_from(["day", "month"])


@examples(4, 25)
def test_the_books_always_agree_with_a_model(organization, max_examples):
    for name in ("echo", "other"):
        factories.tool(organization, name)
    run_state_machine_as_test(lambda: Books(organization), settings=of_machine(max_examples, 25))


class Books(RuleBasedStateMachine):
    """An agent with any allowances: reserved and used amounts, compared with sums in memory."""

    open_calls = Bundle("open_calls")

    def __init__(self, organization):
        super().__init__()
        self.organization = organization
        self.undo = transaction.atomic()
        self.undo.__enter__()
        registry.forget()  # the revision in its cache was rolled back
        self.agent = factories.agent(organization)
        self.bounds, self.books, self.holds = {}, {}, {}

    def teardown(self):
        transaction.set_rollback(True)
        self.undo.__exit__(None, None, None)

    @initialize(rows=st.dictionaries(st.tuples(KINDS, TOOLS, PERIODS), AMOUNTS, max_size=5))
    def bound(self, rows):
        rows = {key: amount // 1 if key[0] == "calls" else amount for key, amount in rows.items()}
        quotas = [(kind, amount, tool, period) for (kind, tool, period), amount in rows.items()]
        allowance_fixtures.bound(self.agent, *quotas)
        self.bounds = rows
        self.books = {key: [ZERO, ZERO] for key in rows}  # used, reserved
        self.caller = factories.caller(self.agent)
        self.snapshot = allowance_fixtures.snapshot_of(self.caller)

    @rule(target=open_calls, tool=st.sampled_from(["echo", "other"]), cost=AMOUNTS)
    def reserve(self, tool, cost):
        price = {key: Decimal(1) if key[0] == "calls" else cost for key in self.bounds}
        mine = [key for key in self.bounds if key[1] in (None, tool)]
        fits = all(
            price[key] == 0 or sum(self.books[key]) + price[key] <= self.bounds[key] for key in mine
        )
        identifier = new_id()
        assert self._reserved(identifier, tool, cost) == fits
        self.holds[identifier] = {key: price[key] for key in mine} if fits else {}
        for key, amount in self.holds[identifier].items():
            self.books[key][1] += amount
        return identifier

    def _reserved(self, identifier, tool, cost):
        try:
            with transaction.atomic():
                allowance_fixtures.reserve(
                    identifier, caller=self.caller, tool=self.snapshot.tools[tool],
                    asked=EffectiveRequest.from_options(None, None), snapshot=self.snapshot,
                    cost=cost,
                )  # fmt: skip
        except QuotaExceeded:
            return False
        return True

    @rule(identifier=open_calls, spent=AMOUNTS)
    def settle(self, identifier, spent):
        budgets.settle(identifier, spent=spent)
        for key, amount in self.holds.pop(identifier, {}).items():
            self.books[key][0] += 1 if key[0] == "calls" else spent
            self.books[key][1] -= amount

    @rule(identifier=consumes(open_calls))
    def release(self, identifier):
        budgets.release(identifier)
        for key, amount in self.holds.pop(identifier, {}).items():
            self.books[key][1] -= amount

    @invariant()
    def they_agree(self):
        found = AllowanceUse.objects.filter(allowance__agent=self.agent).select_related("allowance")
        stored = {
            (use.allowance.kind, use.allowance.tool_name or None, use.allowance.period):
            [use.used, use.held]
            for use in found
        }  # fmt: skip
        assert stored == {key: book for key, book in self.books.items() if key in stored}
        assert all(not any(book) for key, book in self.books.items() if key not in stored)
        held = Reservation.objects.filter(use__allowance__agent=self.agent).count()
        assert held == sum(map(len, self.holds.values()))
