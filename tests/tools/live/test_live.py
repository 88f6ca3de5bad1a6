"""Server-sent event streams of the running crib: authorization, events, and when they end."""

import asyncio
import http.client
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests import crib as cribs
from tests import factories
from tests.conditions import until
from tests.tools.approval_requests import call_awaiting_approval
from tests.tools.live import stream_client as reads
from tests.tools.live.stream_client import logged_in, reading
from tools.accounts.login import login
from tools.execution import events
from tools.live import relay
from tools.live.live_streams import MOST_PER_SESSION, LiveStream, LiveStreams, Topics
from tools.live.readers import load_readers
from tools.models import Agent, Execution, Organization, User

SOON_S, NEVER_S = 5, 1.5
A_MINUTE_S = 60


@pytest.fixture
def place(committed: None, organization: Organization) -> Organization:
    return organization


@pytest.fixture
def person(place: Organization) -> User:
    """A superuser, who sees everything in the organization."""
    return factories.superuser(place)


@pytest.fixture
def caller(place: Organization) -> Agent:
    factories.tool(place)
    return factories.agent(place, groups=["*"])


def test_an_event_carries_no_content_of_the_call(
    crib: cribs.Crib, person: User, caller: Agent
) -> None:
    with reading(crib, person, "executions") as stream:
        assert stream.answer.readline() == b": following\n"
        factories.execution(caller, text="secret")
        lines = [stream.answer.readline() for _ in range(3)]
        assert lines == [b"\n", b"event: changed\n", b"data: 0\n"]


def test_one_call_is_followed_by_its_id(crib: cribs.Crib, person: User, caller: Agent) -> None:
    execution = factories.execution(caller)
    until(lambda: Execution.objects.get(pk=execution.pk).is_final)
    with (
        reading(crib, person, execution.pk) as followed,
        reading(crib, person, uuid4()) as unrelated,
    ):
        events.notify_waiters(execution.pk)
        assert followed.hears_within(SOON_S) and not unrelated.hears_within(NEVER_S)


def test_users_who_decide_are_notified_of_calls_that_await_approval(
    crib: cribs.Crib, person: User, place: Organization
) -> None:
    factories.tool(place, requires_confirmation=True)
    with reading(crib, person, "confirmations") as stream:
        call_awaiting_approval(factories.agent(place))
        assert stream.hears_within(SOON_S)


@pytest.mark.parametrize("topic", ["executions", "confirmations"])
def test_a_user_without_permissions_is_not_notified_of_calls_of_others(
    crib: cribs.Crib, place: Organization, topic: str
) -> None:
    factories.tool(place, requires_confirmation=True)
    with reading(crib, factories.person(place), topic) as stream:
        call_awaiting_approval(factories.agent(place))
        assert stream.status == 200 and not stream.hears_within(NEVER_S)


@pytest.mark.part("walks")
def test_another_organization_is_not_notified(crib: cribs.Crib, person: User) -> None:
    elsewhere = factories.organization(f"other-{person.pk.hex[-8:]}")
    factories.tool(elsewhere)
    with reading(crib, person, "executions") as stream:
        execution = factories.execution(factories.agent(elsewhere, groups=["*"]))
        with reading(crib, person, execution.pk) as of_one:
            factories.release(execution)
            assert not stream.hears_within(NEVER_S) and not of_one.hears_within(NEVER_S)


def log_out(person: User) -> None:
    login.end_sessions(user=person, by=factories.actor(person.organization))


def disable(person: User) -> None:
    User.objects.filter(pk=person.pk).update(is_active=False)


def change_password(person: User) -> None:
    person.set_password("another horse")
    person.save(update_fields=["password"])


ENDS = (log_out, disable, change_password)


@pytest.mark.parametrize("end", ENDS)
def test_a_stream_ends_with_what_it_was_opened_for(
    person: User, end: Callable[[User], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CHECK_S", 0.0)
    key, streams = logged_in(person), LiveStreams(8)
    topics = Topics.read(["executions"])
    with (
        streams.open_stream(key, topics, "") as over,
        streams.open_stream(logged_in(person), topics, "") as unread,
    ):
        over.reader = load_readers([key])[key]
        end(person)
        with ThreadPoolExecutor(1) as thread:  # Playwright runs a loop in this one
            thread.submit(asyncio.run, watch_until_changed(relay.Relay(streams), over)).result()
        assert over.over and not unread.over


async def watch_until_changed(watching: relay.Relay, stream: LiveStream) -> None:
    watch = asyncio.create_task(watching.watch())
    await asyncio.wait_for(stream.changed.wait(), A_MINUTE_S)
    watch.cancel()


@pytest.mark.part("faults")
def test_the_running_product_ends_streams(crib: cribs.Crib, place: Organization) -> None:
    people = {end: factories.superuser(place) for end in ENDS}
    with ExitStack() as opened:
        streams = {
            end: opened.enter_context(reading(crib, person, "executions"))
            for end, person in people.items()
        }
        for end, person in people.items():
            end(person)
        ends = {end.__name__: stream.ends_within(A_MINUTE_S) for end, stream in streams.items()}
    assert ends == {end.__name__: True for end in ENDS}


def test_without_a_session_no_stream_is_opened(crib: cribs.Crib, person: User) -> None:
    found = urlsplit(reads.place(crib, logged_in(person)))
    for given in ({}, reads.cookie("x" * 32), reads.cookie("../../etc"), reads.cookie("")):
        one = reads.Reading(found.netloc, f"{found.path}?of=executions", given)
        assert one.status == 401
        one.connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_pages_of_others_get_no_stream(
    crib: cribs.Crib, person: User, headers: dict[str, str], status: int
) -> None:
    with reading(crib, person, "executions", **headers) as stream:
        assert stream.status == status
        assert "Access-Control-Allow-Origin" not in stream.answer.headers


def test_a_page_of_ours_may_read_with_its_cookie(crib: cribs.Crib, person: User) -> None:
    with reading(crib, person, "executions") as stream:
        assert stream.answer.headers["Access-Control-Allow-Origin"] == crib.url
        assert stream.answer.headers["Access-Control-Allow-Credentials"] == "true"
        assert stream.answer.headers["Content-Type"] == "text/event-stream"


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("topics", [(), ("everything",), ("%00",), tuple("abcdefghi"), ("1" * 40,)])
def test_invalid_topics_are_refused(
    crib: cribs.Crib, person: User, topics: tuple[str, ...]
) -> None:
    with reading(crib, person, *topics) as stream:
        assert stream.status == 400


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/live/", 405), ("GET", "/", 404)])
def test_there_is_nothing_else(
    crib: cribs.Crib, person: User, method: str, path: str, status: int
) -> None:
    found = urlsplit(reads.place(crib, logged_in(person)))
    connection = http.client.HTTPConnection(found.netloc, timeout=10)
    connection.request(method, path)
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.part("walks")
def test_a_session_has_so_many_streams_and_a_closed_one_makes_room(
    crib: cribs.Crib, person: User
) -> None:
    key = logged_in(person)
    with ExitStack() as opened:
        for _ in range(MOST_PER_SESSION):
            stream = opened.enter_context(reading(crib, person, "executions", key=key))
            assert stream.status == 200
        with reading(crib, person, "executions", key=key) as one_more:
            assert one_more.status == 503
    for _ in range(40):
        with reading(crib, person, "executions", key=key) as again:
            if again.status == 200:
                return
    raise AssertionError("no place became free")
