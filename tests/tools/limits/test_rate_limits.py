"""Rate limits: never more calls a minute than the limit, whichever store counts and whatever data
is lost."""

import itertools
import socket
import threading
import time
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from tests import factories
from tests.tools.limits import allowance_fixtures, rate_fixtures
from tools.errors import InvalidCall, RateLimited
from tools.execution.admit import admit
from tools.limits import rate_limits
from tools.limits.rate_limits import SINCE, RateWindow
from tools.models import Execution, RateHit

pytestmark = pytest.mark.usefixtures("committed")
LIMIT, CLIENTS = 10, 64


@pytest.fixture
def redis_counts(organization):
    rate_fixtures.trust()


@pytest.fixture
def redis_is_away(monkeypatch):
    monkeypatch.setattr(rate_limits, "window", RateWindow(rate_fixtures.nowhere))


def count(caller, name="echo"):
    snapshot = allowance_fixtures.snapshot_of(caller)
    return rate_limits.count(caller, snapshot.tools[name], snapshot)


def call(caller, name="echo"):
    return admit(caller, factories.call(name, {"text": "x"}))


def refused(caller, name="echo"):
    with pytest.raises(RateLimited) as caught:
        call(caller, name)
    return caught.value


def test_a_tool_without_a_limit_is_not_counted(agent, organization, monkeypatch):
    monkeypatch.setattr(rate_limits, "window", None)
    factories.tool(organization)
    assert count(factories.caller(agent)) is None
    assert call(factories.caller(agent)).rated_by == ""


@pytest.mark.usefixtures("redis_counts")
def test_of_many_at_once_exactly_as_many_pass_as_may(agent, organization):
    rate_fixtures.limited(organization, LIMIT)
    outcomes = rate_fixtures.ask_at_once(factories.caller(agent), CLIENTS)
    assert outcomes.count("passed") == LIMIT
    assert outcomes.count("rate_limited") == CLIENTS - LIMIT
    assert rate_fixtures.passed_by(organization) == {"redis": LIMIT}
    assert (rate_fixtures.counted(organization), rate_fixtures.hits(organization)) == (LIMIT, 0)


@pytest.mark.usefixtures("redis_is_away")
def test_without_redis_exactly_as_many_pass(agent, organization):
    rate_fixtures.limited(organization, LIMIT)
    outcomes = rate_fixtures.ask_at_once(factories.caller(agent), CLIENTS)
    assert outcomes.count("passed") == LIMIT == rate_fixtures.hits(organization)
    assert rate_fixtures.passed_by(organization) == {"postgres": LIMIT}


@pytest.mark.part("calls")
def test_a_redis_that_has_only_begun_to_count_is_not_believed(agent, organization):
    rate_fixtures.lose(organization)
    rate_fixtures.limited(organization, LIMIT)
    outcomes = rate_fixtures.ask_at_once(factories.caller(agent), CLIENTS)
    assert outcomes.count("passed") == LIMIT
    assert rate_fixtures.passed_by(organization) == {"postgres": LIMIT}
    assert (
        rate_fixtures.counted(organization) == LIMIT
    )  # Redis knows them all when it is trusted again


@pytest.mark.part("calls")
@pytest.mark.usefixtures("redis_counts")
def test_a_flush_between_calls_lets_no_call_pass_twice(agent, organization):
    rate_fixtures.limited(organization, 40)
    caller = factories.caller(agent)
    before = rate_fixtures.ask_at_once(caller, 32)
    rate_fixtures.lose(organization)
    after = rate_fixtures.ask_at_once(caller, 32)
    assert (before.count("passed"), after.count("passed")) == (32, 8)
    assert rate_fixtures.passed_by(organization) == {"redis": 32, "postgres": 8}


@pytest.mark.part("calls")
@pytest.mark.usefixtures("redis_counts")
def test_a_flush_during_calls_lets_no_call_pass_twice(agent, organization):
    rate_fixtures.limited(organization, 20)

    def lose(passed):
        if passed == 5:
            rate_fixtures.lose(organization)

    outcomes = rate_fixtures.ask_at_once(factories.caller(agent), CLIENTS, after=lose)
    assert outcomes.count("passed") == sum(rate_fixtures.passed_by(organization).values()) == 20


@pytest.mark.usefixtures("redis_counts")
def test_a_call_that_passed_before_a_loss_and_has_no_row_yet_is_asked_again(agent, organization):
    tool = rate_fixtures.limited(organization, 2)
    caller = factories.caller(agent)
    on_their_way = [count(caller), count(caller)]
    rate_fixtures.lose(organization)
    call(caller), call(caller)
    for rate in on_their_way:
        with pytest.raises(RateLimited), transaction.atomic():
            rate_limits.confirm(
                rate, caller=caller, tool=allowance_fixtures.snapshot_of(caller).tools[tool.name]
            )
    assert rate_fixtures.passed_by(organization) == {"postgres": 2}


class HalfBlind:
    """Two processes in turn, of which one does not reach Redis."""

    def __init__(self):
        self.turns = itertools.cycle([RateWindow(), RateWindow(rate_fixtures.nowhere)])

    def ask(self, key, limit):
        return next(self.turns).ask(key, limit)

    def note(self, key, limit):
        """Only the process without Redis would note the call."""

    def take_back(self, key, ticket):
        RateWindow().take_back(key, ticket)


@pytest.mark.part("calls")
@pytest.mark.usefixtures("redis_counts")
def test_processes_of_which_one_does_not_reach_redis_share_one_limit(
    agent, organization, monkeypatch
):
    monkeypatch.setattr(rate_limits, "window", HalfBlind())
    rate_fixtures.limited(organization, LIMIT)
    outcomes = rate_fixtures.ask_at_once(factories.caller(agent), CLIENTS)
    assert outcomes.count("passed") == sum(rate_fixtures.passed_by(organization).values()) == LIMIT


@pytest.mark.usefixtures("redis_counts")
def test_what_postgres_let_pass_binds_a_redis_that_does_not_know_of_it(
    agent, organization, monkeypatch
):
    rate_fixtures.limited(organization, 3)
    caller = factories.caller(agent)
    with monkeypatch.context() as patch:
        patch.setattr(rate_limits, "window", RateWindow(rate_fixtures.nowhere))
        call(caller), call(caller)
    last = call(caller)
    assert last.rated_by == "redis" and last.rate.used == 3
    assert refused(caller).details["used"] == 3
    assert rate_fixtures.counted(organization) == 1  # the refused call was subtracted


@pytest.mark.usefixtures("redis_counts")
def test_what_is_refused_is_not_counted(agent, organization):
    rate_fixtures.limited(organization, 2)
    caller = factories.caller(agent)
    call(caller), call(caller)
    for _ in range(3):
        assert refused(caller).details["used"] == 2
    assert rate_fixtures.counted(organization) == 2


@pytest.mark.usefixtures("redis_counts")
def test_an_invalid_call_that_came_past_the_limit_counts(agent, organization):
    rate_fixtures.limited(organization, 1)
    with pytest.raises(InvalidCall):
        admit(factories.caller(agent), factories.call("echo", {}))
    assert refused(factories.caller(agent)).code == "rate_limited"


@pytest.mark.parametrize("counter", ["redis_counts", "redis_is_away"])
def test_a_refusal_says_how_much_is_used_and_when_to_come_back(
    agent, organization, request, counter
):
    request.getfixturevalue(counter)
    rate_fixtures.limited(organization, 2)
    caller = factories.caller(agent)
    call(caller), call(caller)
    refusal = refused(caller)
    assert (refusal.code, refusal.http_status) == ("rate_limited", 429)
    assert (refusal.details["gate"], refusal.details["limit"]) == ("rate", 2)
    assert refusal.details["used"] == 2 and 1 <= refusal.details["resets_in_s"] <= 60
    row = Execution.objects.get(pk=refusal.details["execution_id"])
    assert (row.status, row.error_code, row.rated_by) == ("PermissionDenied", "rate_limited", "")


@pytest.mark.parametrize("counter", ["redis_counts", "redis_is_away"])
def test_agents_and_tools_have_limits_of_their_own(agent, organization, request, counter):
    request.getfixturevalue(counter)
    rate_fixtures.limited(organization, 1)
    rate_fixtures.limited(organization, 1, "other")
    caller = factories.caller(agent)
    another = factories.caller(factories.agent(organization))
    assert call(caller) and call(caller, "other") and call(another)
    assert refused(caller) and refused(caller, "other") and refused(another)


@pytest.mark.usefixtures("redis_counts")
def test_an_agent_has_one_limit_for_all_its_tokens(agent, organization):
    rate_fixtures.limited(organization, 1)
    call(factories.caller(agent))
    assert refused(factories.caller(agent)).details["limit"] == 1


@pytest.mark.usefixtures("redis_counts")
def test_the_window_slides(agent, organization):
    rate_fixtures.limited(organization, 2)
    caller = factories.caller(agent)
    call(caller), call(caller)
    key = rate_fixtures.keys(organization)[0]
    first = rate_fixtures.server().zrange(key, 0, 0)[0]
    rate_fixtures.server().zincrby(key, -50e6, first)
    assert refused(caller).details["resets_in_s"] <= 10
    rate_fixtures.server().zincrby(key, -11e6, first)
    assert call(caller).rate.used == 2
    assert refused(caller).details["resets_in_s"] > 50


@pytest.mark.usefixtures("redis_is_away")
def test_the_window_slides_in_postgres_too(agent, organization):
    rate_fixtures.limited(organization, 2)
    caller = factories.caller(agent)
    call(caller), call(caller)
    oldest = RateHit.objects.filter(organization=organization).earliest("id")
    RateHit.objects.filter(pk=oldest.pk).update(at=F("at") - timedelta(seconds=50))
    assert refused(caller).details["resets_in_s"] <= 10
    RateHit.objects.filter(pk=oldest.pk).update(at=F("at") - timedelta(seconds=11))
    assert call(caller).rate.used == 2
    assert refused(caller).details["resets_in_s"] > 50


@pytest.mark.usefixtures("redis_counts")
def test_a_limit_that_was_lowered_is_kept_at_once(agent, organization):
    tool = rate_fixtures.limited(organization, 3)
    caller = factories.caller(agent)
    call(caller), call(caller), call(caller)
    key = rate_fixtures.keys(organization)[0]
    for place, age_s in enumerate((40, 30, 20)):
        rate_fixtures.server().zincrby(
            key, -age_s * 1e6, rate_fixtures.server().zrange(key, place, place)[0]
        )
    answer = RateWindow().ask(f"toolcrib:rate:{organization.pk}:{caller.user_id}:{tool.pk}", 1)
    assert (answer.passes, answer.used) == (False, 3)
    assert 39 <= answer.leaves_in_s <= 40  # all three must have left the window


@pytest.mark.usefixtures("redis_counts")
def test_a_redis_that_was_started_again_is_not_believed(agent, organization):
    rate_fixtures.limited(organization, LIMIT)
    rate_fixtures.server().script_flush()  # as a restart does, which may lose the last second
    assert call(factories.caller(agent)).rated_by == "postgres"


@pytest.mark.usefixtures("redis_counts")
def test_a_clock_that_was_set_back_is_not_believed(agent, organization):
    rate_fixtures.limited(organization, LIMIT)
    rate_fixtures.server().set(SINCE, int((time.time() + 3600) * 1e6))
    assert call(factories.caller(agent)).rated_by == "postgres"
    assert int(rate_fixtures.server().get(SINCE)) < (time.time() + 1) * 1e6


@pytest.mark.usefixtures("redis_counts")
def test_a_redis_that_refuses_is_replaced(agent, organization, monkeypatch):
    tool = rate_fixtures.limited(organization, 1)
    caller = factories.caller(agent)
    rate_fixtures.server().set(
        f"toolcrib:rate:{organization.pk}:{caller.user_id}:{tool.pk}", "spoilt"
    )
    monkeypatch.setattr(rate_limits, "window", RateWindow())
    assert call(caller).rated_by == "postgres"
    assert refused(caller).details["limit"] == 1


@pytest.fixture
def mute(tmp_path_factory):
    """A server that accepts connections and never answers, with the accepted connections."""
    path = tmp_path_factory.mktemp("mute") / "s"
    taken = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_take, args=(listener, taken), daemon=True)
        thread.start()
        yield str(path), taken
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    [connection.close() for connection in taken]


def _take(listener, taken):
    while True:
        try:
            taken.append(listener.accept()[0])
        except OSError:
            return


def test_a_redis_that_does_not_answer_costs_its_timeout_once(
    agent, organization, mute, settings, monkeypatch
):
    path, taken = mute
    settings.REDIS_URL = f"unix://{path}"
    monkeypatch.setattr(rate_limits, "window", RateWindow())
    rate_fixtures.limited(organization, 3)
    caller = factories.caller(agent)
    assert [count(caller).counted_by for _ in range(3)] == ["postgres"] * 3
    assert len(taken) == 1


@pytest.mark.usefixtures("redis_is_away")
def test_what_has_left_every_window_is_deleted(agent, organization):
    rate_fixtures.limited(organization, 5)
    caller = factories.caller(agent)
    call(caller), call(caller)
    oldest = RateHit.objects.filter(organization=organization).earliest("id")
    RateHit.objects.filter(pk=oldest.pk).update(at=Now() - timedelta(minutes=3))
    rate_limits.delete_old_hits()
    assert rate_fixtures.hits(organization) == 1
