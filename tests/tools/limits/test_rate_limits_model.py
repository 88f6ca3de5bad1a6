"""Property test of rate limits: whatever data is lost and whichever store counts, never more calls
than the limit."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests import factories
from tests.properties import examples, of_machine
from tests.tools.limits import rate_fixtures
from tools.errors import RateLimited
from tools.execution.admit import admit
from tools.limits import rate_limits
from tools.limits.rate_limits import SINCE, RateWindow
from tools.models import Execution, RateHit

LIMIT, WINDOW_S = 3, 60
STEP_S = 25  # no call is ever close to leaving its window


class Limited(RuleBasedStateMachine):
    """The model knows how long ago each call passed. Time advances by changing the stored times."""

    def __init__(self):
        super().__init__()
        self.place = factories.organization(f"rate-{uuid4().hex[:10]}")
        rate_fixtures.limited(self.place, LIMIT)
        self.callers = [factories.caller(factories.agent(self.place)) for _ in range(2)]
        self.ages = [[], []]
        self.reach(True)

    @rule(who=st.sampled_from([0, 1]))
    def call(self, who):
        inside = sum(age < WINDOW_S for age in self.ages[who])
        try:
            execution = admit(self.callers[who], factories.call("echo", {"text": "x"}))
        except RateLimited:
            assert inside == LIMIT
            return
        assert inside < LIMIT and execution.rate.used == inside + 1
        self.ages[who].append(0)

    @rule()
    def time_goes_on(self):
        self.ages = [[age + STEP_S for age in ages] for ages in self.ages]
        back, client = timedelta(seconds=STEP_S), rate_fixtures.server()
        for key in rate_fixtures.keys(self.place):
            for member in client.zrange(key, 0, -1):
                client.zincrby(key, -STEP_S * 1e6, member)
        if (since := client.get(SINCE)) is not None:
            client.set(SINCE, int(since) - int(STEP_S * 1e6))
        RateHit.objects.filter(organization=self.place).update(at=F("at") - back)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE tools_execution DISABLE TRIGGER USER")  # some have ended
            executions = Execution.objects.filter(organization=self.place)
            executions.update(created_at=F("created_at") - back)
            cursor.execute("ALTER TABLE tools_execution ENABLE TRIGGER USER")

    @rule(there=st.booleans())
    def reach(self, there):
        """Redis becomes unreachable, or reachable with its former data."""
        rate_limits.window = RateWindow() if there else RateWindow(rate_fixtures.nowhere)

    @rule()
    def lose_everything(self):
        rate_fixtures.lose(self.place)

    @rule()
    def trust_again(self):
        """Only a Redis that lost no data is trusted after two minutes."""
        client, inside = (
            rate_fixtures.server(),
            [age < WINDOW_S for ages in self.ages for age in ages],
        )
        begins = client.time()[0] * 1e6 - WINDOW_S * 1e6
        counted = sum(client.zcount(key, begins, "+inf") for key in rate_fixtures.keys(self.place))
        if counted == sum(inside):
            rate_fixtures.trust()

    def teardown(self):
        rate_limits.window = RateWindow()


@pytest.mark.usefixtures("committed")
@examples(2, 8)
def test_no_order_of_events_lets_one_call_more_pass(max_examples):
    run_state_machine_as_test(Limited, settings=of_machine(max_examples, 30))
