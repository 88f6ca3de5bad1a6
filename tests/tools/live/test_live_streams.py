from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session as BrowserSession
from django.utils import timezone

from tests import factories
from tests.tools.live.stream_client import logged_in
from tools.live.live_streams import (
    MOST_PER_SESSION,
    MOST_UNAUTHENTICATED_PER_ADDRESS,
    ExecutionChange,
    LiveStream,
    LiveStreams,
    StreamLimitReached,
    Topics,
)
from tools.live.readers import LiveReader, load_readers
from tools.models import Organization, User

HERE, THERE, ME, OTHER = uuid4(), uuid4(), uuid4(), uuid4()
CALL, PARENT = uuid4(), uuid4()
HERE_IP, THERE_IP = "192.0.2.1", "192.0.2.2"
OTHERS = ExecutionChange(CALL, PARENT, HERE, frozenset({OTHER, None}), held=False)
MINE = replace(OTHERS, people=frozenset({ME, None}))
HELD = replace(OTHERS, held=True)
READER = LiveReader(HERE, ME, everyone=False, decides=False)


def stream(*topics: str, everyone: bool = False, decides: bool = False) -> LiveStream:
    reader = replace(READER, everyone=everyone, decides=decides)
    return LiveStream("key", Topics.read(topics), reader)


@pytest.mark.parametrize(
    ("one", "change", "wanted"),
    [
        (stream("executions"), MINE, True),
        (stream("executions"), OTHERS, False),
        (stream("executions", everyone=True), OTHERS, True),
        (stream("executions", decides=True), HELD, False),
        (stream("confirmations", decides=True), HELD, True),
        (stream("confirmations", decides=True), OTHERS, False),
        (stream("confirmations", everyone=True), HELD, False),
        (stream(str(CALL)), MINE, True),
        (stream(str(PARENT)), MINE, True),
        (stream(str(CALL)), OTHERS, False),
        (stream(str(CALL), decides=True), HELD, True),
        (stream(str(uuid4()), everyone=True), OTHERS, False),
        (stream("executions", everyone=True), replace(OTHERS, organization_id=THERE), False),
    ],
)
def test_a_stream_is_notified_of_what_its_reader_may_see(
    one: LiveStream, change: ExecutionChange, wanted: bool
) -> None:
    assert one.wants(change) is wanted


def test_an_unauthenticated_stream_is_not_notified() -> None:
    assert not LiveStream("key", Topics.read(["executions"])).wants(MINE)


@pytest.mark.parametrize("names", [[], ["x"], ["\x00"], [str(UUID(int=n)) for n in range(9)]])
def test_invalid_topics_are_no_topics(names: list[str]) -> None:
    with pytest.raises(ValueError):
        Topics.read(names)


def test_places_are_given_back() -> None:
    streams, topics = LiveStreams(1), Topics.read(["executions"])
    with (
        streams.open_stream("a", topics, HERE_IP),
        pytest.raises(StreamLimitReached),
        streams.open_stream("b", topics, HERE_IP),
    ):
        pass
    with streams.open_stream("b", topics, HERE_IP):
        assert len(streams) == 1


def test_a_session_takes_no_more_than_its_places() -> None:
    streams, topics = LiveStreams(1_000), Topics.read(["executions"])
    held = [streams.open_stream("a", topics, HERE_IP) for _ in range(MOST_PER_SESSION)]
    for one in held:
        one.__enter__()
    with pytest.raises(StreamLimitReached), streams.open_stream("a", topics, HERE_IP):
        pass
    with streams.open_stream("b", topics, HERE_IP):
        pass


def entered(streams: LiveStreams, held: ExitStack, count: int, address: str) -> list[LiveStream]:
    topics = Topics.read(["executions"])
    return [
        held.enter_context(streams.open_stream(f"{address}-{len(streams)}", topics, address))
        for _ in range(count)
    ]


def test_strangers_of_one_address_take_few_places() -> None:
    streams = LiveStreams(1_000)
    with ExitStack() as held:
        entered(streams, held, MOST_UNAUTHENTICATED_PER_ADDRESS, HERE_IP)
        with pytest.raises(StreamLimitReached):
            entered(streams, held, 1, HERE_IP)
        entered(streams, held, 1, THERE_IP)


def test_strangers_of_all_addresses_never_take_the_places_of_readers() -> None:
    streams = LiveStreams(8)
    with ExitStack() as held:
        one, other = entered(streams, held, 2, HERE_IP)
        with pytest.raises(StreamLimitReached):
            entered(streams, held, 1, THERE_IP)
        streams.admit(one, READER)
        streams.admit(other, READER)
        entered(streams, held, 2, THERE_IP)


def test_an_organization_never_has_the_last_quarter() -> None:
    streams = LiveStreams(8)
    with ExitStack() as held:
        for _ in range(6):
            streams.admit(*entered(streams, held, 1, HERE_IP), READER)
        (late,) = entered(streams, held, 1, HERE_IP)
        with pytest.raises(StreamLimitReached):
            streams.admit(late, READER)
        streams.admit(late, replace(READER, organization_id=THERE))
    assert len(streams) == 0
    with ExitStack() as held:
        for _ in range(6):
            streams.admit(*entered(streams, held, 1, HERE_IP), READER)


def test_who_is_logged_in_no_more_is_let_go_and_others_are_held_to_new_rights() -> None:
    streams, topics = LiveStreams(9), Topics.read(["executions"])
    with (
        streams.open_stream("a", topics, HERE_IP) as gone,
        streams.open_stream("b", topics, HERE_IP) as stays,
    ):
        gone.reader = stays.reader = READER
        now = replace(READER, everyone=True)
        streams.update_readers({"b": now}, {"a", "b"})
        assert gone.over and not stays.over and stays.reader == now


def test_many_pages_are_spread_and_few_are_not() -> None:
    streams, topics = LiveStreams(9_999), Topics.read(["executions"])
    held = [streams.open_stream(str(n), topics, str(n)) for n in range(1_000)]
    for one in held[:50]:
        one.__enter__()
    assert streams.spread_ms == 0
    for one in held[50:]:
        one.__enter__()
    assert streams.spread_ms == 9_500


@pytest.fixture
def person(organization: Organization) -> User:
    return factories.person(organization)


def test_a_person_is_known_by_the_session(person: User) -> None:
    key = logged_in(person)
    found = load_readers([key, "unknown"])
    assert set(found) == {key}
    assert found[key].user_id == person.pk and not found[key].everyone and not found[key].decides


@pytest.mark.parametrize(
    ("permission", "everyone", "decides"),
    [
        ("view_execution", True, False),
        ("view_confirmation", False, True),
        ("decide_confirmation", False, True),
    ],
)
def test_rights_are_those_that_are_granted(
    person: User, permission: str, everyone: bool, decides: bool
) -> None:
    factories.permit(person, permission)
    found = next(iter(load_readers([logged_in(person)]).values()))
    assert (found.everyone, found.decides) == (everyone, decides)


def test_a_session_that_is_over_is_nobodys(person: User) -> None:
    key = logged_in(person)
    BrowserSession.objects.filter(pk=key).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert load_readers([key]) == {}


@pytest.mark.parametrize("field", ["is_active", "is_service_account"])
def test_users_who_may_not_log_in_read_nothing(person: User, field: str) -> None:
    key = logged_in(person)
    User.objects.filter(pk=person.pk).update(**{field: field != "is_active"})
    assert load_readers([key]) == {}


@pytest.mark.parametrize("held", [{}, {"_auth_user_id": "x"}, {"_auth_user_id": "\x00"}])
def test_a_session_without_a_user_reads_nothing(db: None, held: dict[str, Any]) -> None:
    store = SessionStore()
    store.update(held)
    store.save()
    assert store.session_key and load_readers([store.session_key]) == {}


def test_many_are_asked_for_at_once(
    organization: Organization, django_assert_max_num_queries: Any
) -> None:
    keys = [logged_in(factories.person(organization)) for _ in range(5)]
    with django_assert_max_num_queries(6):
        assert len(load_readers(keys)) == 5
