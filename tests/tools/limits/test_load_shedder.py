"""Load shedding: calls are rejected while too many wait or run, and rejections are recorded as
totals."""

import time
from uuid import uuid4

import pytest
from django.db import OperationalError

from audit.errors import Unwritable
from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.results import Status
from tools.errors import Overloaded, Shed
from tools.execution.accept import accept
from tools.execution.admit import ADMISSION
from tools.execution.call import Admission, Result
from tools.execution.claim import claim
from tools.execution.finish import finish
from tools.limits import load_shedder
from tools.limits.load_shedder import (
    FIRST_REJECTIONS,
    Arrival,
    LoadShedder,
    RejectionCounter,
    Sample,
    SamplingLoadShedder,
    take_sample,
)
from tools.models import Agent, Execution, Organization
from tools.models.queue import InFlight, QueuePosition

PLACE, AGENT = uuid4(), uuid4()


def caller(**fields):
    usual = {
        "kind": CallerKind.AGENT, "name": "scout", "organization_id": PLACE, "organization": "here",
        "revision": 1, "user_id": uuid4(), "agent_id": AGENT,
    }  # fmt: skip
    return Caller(**usual | fields)


def knowing(*, at=0.0, depth=0, most=10, oldest_s=None, in_flight=None, others=()):
    places = [QueuePosition(PLACE, "here", most, depth, oldest_s)]
    places += [QueuePosition(uuid4(), "there", 10, 1, waited) for waited in others]
    agents = {AGENT: InFlight(*in_flight)} if in_flight else {}
    return Sample(at, {place.id: place for place in places}, agents)


def shedder_with(**fields):
    made = LoadShedder()
    made.sample(knowing(**fields))
    return made


def refused(made, who=None):
    with pytest.raises(Shed) as caught:
        made.enter(who or caller())
    return caught.value


def test_a_full_queue_refuses_with_what_the_contract_asks_for():
    refusal = refused(shedder_with(depth=10, oldest_s=7.2))
    assert (refusal.code, refusal.http_status) == ("queue_full", 429)
    assert refusal.details == {"gate": "load", "limit": 10, "used": 10, "resets_in_s": 8}


def test_room_in_the_queue_is_used_up_to_the_last_place():
    made = shedder_with(depth=8)
    for _ in range(2):
        made.leave(made.enter(caller()), written=True)
    assert refused(made).details["used"] == 10


class Overtaken(LoadShedder):
    """Admits another call between the check and the entry."""

    def refusal(self, who, *, recent=True):
        said = super().refusal(who, recent=recent)
        if not self._recent:
            self._recent[PLACE].add(Arrival((PLACE,)))
        return said


def test_of_two_that_ask_at_once_one_has_the_last_place():
    made = Overtaken()
    made.sample(knowing(depth=9))
    assert refused(made).code == "queue_full"


def test_an_agent_with_too_many_open_calls_is_refused():
    refusal = refused(shedder_with(in_flight=(3, 3)))
    assert (refusal.code, refusal.http_status) == ("too_many_in_flight", 429)
    assert (refusal.details["limit"], refusal.details["used"]) == (3, 3)
    assert shedder_with(in_flight=(3, 3)).enter(caller(agent_id=uuid4()))


def test_a_call_that_was_not_written_leaves_its_place():
    made = shedder_with(in_flight=(1, 0))
    made.leave(made.enter(caller()), written=False)
    assert made.enter(caller())


@pytest.mark.parametrize(("left_at", "passes"), [(1.0, True), (3.0, False)])
def test_a_call_is_counted_until_a_sample_has_seen_its_row(left_at, passes):
    made = shedder_with(in_flight=(1, 0))
    arrival = made.enter(caller())
    arrival.at, arrival.left_at = 0.5, left_at
    made.sample(knowing(at=2.0, in_flight=(1, 0)))
    assert (made.refusal(caller()) is None) is passes


def test_an_arrival_that_was_lost_is_not_counted_for_ever():
    made = shedder_with(in_flight=(1, 0))
    made.enter(caller()).at = 0.0
    made.sample(knowing(at=60.0, in_flight=(1, 0)))
    assert made.enter(caller())


@pytest.mark.parametrize(
    ("fields", "served"),
    [
        ({"oldest_s": 29.0}, True),
        ({"oldest_s": 31.0}, False),
        ({"oldest_s": None, "depth": 5}, True),  # they wait for their bounds, not for a worker
        ({"others": (31.0, 2.0)}, True),  # another organization's backlog does not count
        ({"others": (31.0, 90.0)}, False),  # no queue of any organization is served
    ],
)
def test_calls_are_rejected_when_no_worker_begins_them(fields, served, settings):
    settings.QUEUE_AGE_S = 30
    refusal = shedder_with(**fields).refusal(caller())
    assert (refusal is None) is served
    if refusal is not None:
        assert isinstance(refusal, Overloaded) and refusal.http_status == 503
        assert refusal.retry_after_s > 0


def test_a_call_that_waited_for_its_own_limit_rejects_no_other_call(settings):
    settings.QUEUE_AGE_S = 30
    theirs = QueuePosition(uuid4(), "there", 10, 1, 90.0, bounded=True)
    made = LoadShedder()
    made.sample(Sample(0.0, {theirs.id: theirs}))
    assert made.refusal(caller()) is None


def test_where_only_a_count_that_ran_ahead_refuses_the_thread_looks_again():
    looks = []
    made = SamplingLoadShedder(lambda: looks.append(1) or knowing(at=time.monotonic(), most=1))
    until(lambda: made.refusal(caller()) is None and looks)
    for _ in range(3):
        arrival = until(lambda: entered(made))
        made.leave(arrival, written=True)
    assert len(looks) >= 3


def entered(made):
    try:
        return made.enter(caller())
    except Shed:
        return None


@pytest.mark.part("calls")
def test_a_thread_that_cannot_look_lets_calls_in_and_looks_again(caplog):
    answers = iter([LookupError, OperationalError])

    def look_at_last():
        if fault := next(answers, None):
            raise fault
        return knowing(at=time.monotonic(), depth=10)

    made = SamplingLoadShedder(look_at_last)
    assert made.enter(caller())
    assert until(lambda: made.refusal(caller())).code == "queue_full"
    message = {row.levelname for row in caplog.records if row.name == load_shedder.__name__}
    assert message == {"ERROR", "WARNING"}


def test_refusals_are_put_on_record_in_sums(organization):
    now = [120.0]
    tally = RejectionCounter(lambda: now[0])
    who = caller(organization=organization.slug)
    for _ in range(FIRST_REJECTIONS + 20):
        tally.add(who, "echo", "queue_full")
    tally.add(who, "echo", "overloaded")
    tally.write()
    assert not records(organization)
    now[0] = 180.0
    tally.write()
    assert {row.reason: row.details["count"] for row in records(organization)} == {
        "queue_full": FIRST_REJECTIONS + 20, "overloaded": 1,
    }  # fmt: skip
    assert not tally


def records(organization):
    return list(AuditRecord.objects.filter(organization=organization.slug, code="TOOL.SHED"))


def test_a_record_of_refusals_names_the_first_callers(organization):
    tally = RejectionCounter(lambda: 60.0)
    for at in range(FIRST_REJECTIONS + 2):
        who = caller(organization=organization.slug, source_ip=f"10.0.0.{at}")
        tally.add(who, "echo", "queue_full")
    tally.write(every=True)
    (row,) = records(organization)
    first = row.details["first"]
    assert [one["source_ip"] for one in first] == [f"10.0.0.{at}" for at in range(FIRST_REJECTIONS)]
    assert {(one["actor"], one["tool"]) for one in first} == {("agent:scout", "echo")}
    assert (row.outcome, row.details["minute"]) == ("denied", "1970-01-01T00:01:00+00:00")


def test_what_could_not_be_put_on_record_is_tried_again(organization):
    tally = RejectionCounter(lambda: 60.0)
    tally.add(caller(organization="\0"), "echo", "queue_full")
    with pytest.raises(Unwritable):
        tally.write(every=True)
    assert tally


def test_a_sample_says_what_waits_and_what_is_open(agent, organization):
    factories.tool(organization)
    Agent.objects.filter(pk=agent.pk).update(max_in_flight=4)
    Organization.objects.filter(pk=organization.pk).update(max_queue_depth=7)
    running, _ = factories.execution(agent), factories.execution(agent)
    factories.claimed(running)
    found = take_sample()
    place = found.places[organization.pk]
    assert (place.slug, place.max_depth, place.depth) == (organization.slug, 7, 1)
    assert place.oldest_s is not None and found.agents[agent.pk] == InFlight(4, 2)


@pytest.mark.parametrize("whose", ["organization", "tool"])
def test_a_sample_says_where_a_bound_may_be_what_is_waited_for(agent, organization, whose):
    tool = factories.tool(organization)
    factories.execution(agent)
    assert not take_sample().places[organization.pk].bounded
    row = {"organization": organization, "tool": tool}[whose]
    type(row).objects.filter(pk=row.pk).update(max_concurrency=2)
    assert take_sample().places[organization.pk].bounded


def test_what_has_no_room_does_not_make_the_queue_old(agent, organization):
    tool = factories.tool(organization)
    factories.claimed(factories.execution(agent))
    factories.execution(agent)
    for row in (organization, tool):
        type(row).objects.filter(pk=row.pk).update(max_concurrency=1)
        assert take_sample().places[organization.pk].oldest_s is None
        type(row).objects.filter(pk=row.pk).update(max_concurrency=None)


def full(admission):
    admission.limits.shed = Shed("full")


def test_an_answer_that_is_known_is_given_all_the_same(agent, organization):
    factories.tool(organization, delivery="pure", cache_ttl="PT5M")
    performance = claim(factories.execution(agent).pk, "test")
    performance.result = Result(Status.SUCCESS, output={})
    finish(performance)
    known, unknown = (
        Admission(factories.caller(agent), factories.call("echo", {"text": text}))
        for text in ("x", "y")
    )
    for admission in (known, unknown):
        for step in ADMISSION:
            step(admission)
        full(admission)
    assert accept(known).cached
    with pytest.raises(Shed):
        accept(unknown)


@pytest.mark.usefixtures("committed")
def test_a_full_queue_is_answered_with_when_to_come_again_and_leaves_no_row(agent, organization):
    factories.tool(organization)
    Organization.objects.filter(pk=organization.pk).update(max_queue_depth=0)
    api = factories.api(agent)
    answer = until(lambda: turned_away(api))
    body = answer.json()
    assert (body["code"], body["limit"]) == ("queue_full", 0)
    assert body["resets_in_s"] == int(answer["Retry-After"])
    assert not Execution.objects.filter(organization=organization, error_code="queue_full").exists()
    load_shedder.LOAD_SHEDDER.rejections.write(every=True)
    assert sum(row.details["count"] for row in records(organization)) >= 1


def turned_away(api):
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 0})
    return answer if answer.status_code == 429 else None
