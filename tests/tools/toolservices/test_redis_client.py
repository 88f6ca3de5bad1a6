"""Calls of tool services over a real broker: results, and the other outcomes of a call."""

import hashlib
import json
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis

from tests.conditions import until
from tests.crib import free_port
from tests.tools.toolservices import services
from tests.tools.toolservices.services import QUEUE, Echo
from toolcrib_service import scripts, serve
from toolcrib_service.queue_protocol import GROUP, Queue, Request, Response, announcements_key
from toolcrib_service.scripts import COMMANDS
from tools.toolservices.announcement_stream import AnnouncementReader
from tools.toolservices.answer_stream import (
    NotAnswered,
    NotBegun,
    TimedOut,
    ToolServiceCallCancelled,
    ToolServiceCallFailed,
    ToolServiceCallLost,
)
from tools.toolservices.redis_client import MOST_BYTES, ToolServiceClient, ToolServiceRequest


@pytest.fixture
def served(url, slug):
    return lambda service, **options: serve(service, url, organization=slug, **options)


def test_the_envelope_arrives_and_what_is_no_text_comes_back_as_json(ask, served):
    with served(services.Echo()):
        text = ask(config={"style": "pun"}, arguments={"topic": "Grüße"})
    assert json.loads(text) == {
        "user": "alice", "config": {"style": "pun"}, "arguments": {"topic": "Grüße"},
    }  # fmt: skip


def test_an_async_service_answers(ask, served):
    with served(services.Async()):
        assert [ask() for _ in range(3)] == ["hello alice"] * 3


@pytest.mark.parametrize(
    ("service", "chunks"),
    [
        (services.Streamed, ["one ", "two ", '{"three": 3}']),
        (services.AsyncStreamed, ["a", "b", "c"]),
    ],
)
def test_chunks_arrive_one_by_one_and_the_answer_is_all_of_them(ask, served, service, chunks):
    received = []
    with served(service()):
        assert ask(received=received) == "".join(chunks)
    assert received == chunks


def test_a_chunk_is_passed_on_before_the_service_has_ended(ask, served):
    service, received = services.Endless(), threading.Event()
    stop = threading.Event()

    class Ears:
        def append(self, _words):
            received.set()
            stop.set()

    with served(service), pytest.raises(ToolServiceCallCancelled) as caught:
        ask(received=Ears(), stop=stop)
    assert received.is_set()
    assert caught.value.begun


@pytest.mark.parametrize("text", ["é" * 200_000, ""], ids=["long", "empty"])
def test_a_text_comes_whole_however_long_it_is(ask, served, text):
    class Says(services.Echo):
        def invoke(self, user, config, arguments):
            return text

    with served(Says()):
        assert ask() == text


def test_only_its_own_kind_of_failure_passes_a_services_words(ask, served, caplog):
    with served(services.Failing()), pytest.raises(ToolServiceCallFailed) as caught:
        ask()
    assert caught.value.code == "TOOL_ERROR"
    assert str(caught.value) == "out-of-jokes: Come back\ufffd[31m tomorrow."
    with served(services.Broken()), pytest.raises(ToolServiceCallFailed) as caught:
        ask()
    assert "swordfish" not in str(caught.value)
    assert "swordfish" in caplog.text


def test_an_error_in_the_middle_of_a_stream_fails_the_call(ask, served):
    received = []
    with (
        served(services.BrokenMidStream()),
        pytest.raises(ToolServiceCallFailed, match=r"tired: No more\."),
    ):
        ask(received=received)
    assert received == ["half"]


@pytest.mark.part("faults")
def test_a_stream_that_never_ends_times_out_and_the_service_is_cancelled(ask, served):
    service = services.Endless()
    with served(service):
        with pytest.raises(TimedOut):
            ask(timeout_s=5)
        assert service.closed.wait(30)


def test_a_cancelled_call_ends_here_and_there(ask, served):
    service, stop = services.Endless(), threading.Event()
    with served(service):
        threading.Timer(0.2, stop.set).start()
        with pytest.raises(ToolServiceCallCancelled) as caught:
            ask(stop=stop)
        assert service.closed.wait(30)
    assert caught.value.begun


def test_too_long_an_answer_is_given_up(ask, served):
    service = services.Endless()
    with served(service):
        with pytest.raises(ToolServiceCallFailed) as caught:
            ask(most_bytes=20)
        assert service.closed.wait(30)
    assert caught.value.code == "OUTPUT_LIMIT"


def test_without_a_service_the_answer_comes_at_once(ask, broker, queue):
    with pytest.raises(NotBegun) as caught:
        ask()
    assert caught.value.code == "SERVICE_UNAVAILABLE"
    assert broker.keys(f"{queue.base}:*") == []


def test_a_request_that_no_process_took_in_time_is_withdrawn(ask, served, broker, queue):
    service = services.Held()
    with served(service, concurrency=1):
        first = threading.Thread(target=ask)
        first.start()
        assert service.begun.acquire(timeout=30)
        with pytest.raises(NotBegun) as caught:
            ask(timeout_s=0.5)
        assert caught.value.code == "SERVICE_BUSY"
        assert broker.xlen(queue.requests) == 0
        service.go.set()
        first.join()
    assert not service.begun.acquire(blocking=False)  # it did not run afterward either


def test_a_cancelled_call_that_no_process_took_never_began(ask, served):
    service, stop = services.Held(), threading.Event()
    with served(service, concurrency=1):
        first = threading.Thread(target=ask)
        first.start()
        assert service.begun.acquire(timeout=30)
        stop.set()
        with pytest.raises(ToolServiceCallCancelled) as caught:
            ask(stop=stop)
        service.go.set()
        first.join()
    assert not caught.value.begun


def test_too_many_waiting_requests_are_refused(url, queue, broker, ask, client):
    broker.zadd(queue.accepting, {"somebody": 10**14})
    client._most_waiting = 1
    broker.xadd(queue.requests, {"id": "x"})
    with pytest.raises(NotBegun) as caught:
        ask()
    assert caught.value.code == "SERVICE_BUSY"


def test_nothing_is_left_behind_by_a_call_that_ended(ask, served, broker, queue):
    with served(services.Echo()):
        ask()
        left = set(broker.keys(f"{queue.base}:*"))
    assert not {one for one in left if ":replies:" in one or ":cancel:" in one}
    assert all(broker.ttl(one) > 0 for one in left if ":claim:" in one)


# --- forged and malformed entries on the streams --------------------------------------------------


class Hand:
    """A service whose replies the test writes."""

    def __init__(self, broker, queue):
        self.broker, self.queue = broker, queue
        broker.xgroup_create(queue.requests, GROUP, id="0", mkstream=True)
        broker.zadd(queue.accepting, {"hand": 10**14})
        broker.zadd(queue.alive, {"hand": 10**14})

    def take(self):
        found = self.broker.xreadgroup(GROUP, "hand", {self.queue.requests: ">"}, block=30_000)
        request = Request.read(found[0][1][0][1])
        self.broker.set(self.queue.claim(request.id), "hand")
        return request

    def say(self, request, n, /, text="", end=False, **changed):
        fields = Response(text, end).fields(request, n) | changed
        return self.broker.xadd(self.queue.replies(request.id), fields, nomkstream=True)


@pytest.fixture
def hand(broker, queue):
    return Hand(broker, queue)


@pytest.fixture
def asking(ask):
    """A call in a thread; `ending` is its outcome."""

    class Asking:
        def __init__(self):
            self.ending = None
            self.thread = threading.Thread(target=self._ask)
            self.thread.start()

        def _ask(self):
            try:
                self.ending = ask()
            except NotAnswered as ending:
                self.ending = ending

        def end(self):
            self.thread.join(60)
            assert not self.thread.is_alive()
            return self.ending

    return Asking


def test_unrequested_answers_are_dropped(hand, asking):
    call = asking()
    request = hand.take()
    hand.say(request, 1, "stolen", end=True, token="guessed")
    hand.say(request, 1, "another's", end=True, id="0" * 32)
    hand.say(request, 1, "yes ")
    hand.say(request, 1, "again ")
    hand.say(request, 1, "x", n="-1")
    hand.say(request, 2, "done", end=True)
    assert call.end() == "yes done"


def test_a_late_answer_finds_no_stream(hand, asking):
    call = asking()
    request = hand.take()
    assert hand.say(request, 1, "done", end=True)
    assert call.end() == "done"
    assert hand.say(request, 2, "late") is None


UNREADABLE = (
    "{", "[]", "null", '{"response": 3}', '{"response": "x", "end_of_stream": 1}',
    '{"error": "x"}', '{"error": {"type": 1}}', "[" * 100_000, '{"response": "\\ud800"}',
    '{"response": "\\u0000"}', '{"response": "", "n": 99999999999999999999}', "x" * 2_000_000,
)  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        *(pytest.param({"body": body}, id=body[:20]) for body in UNREADABLE),
        # More than any response may have is not even received.
        pytest.param({"body": "x" * (MOST_BYTES + 1)}, id="one-text"),
        pytest.param(
            {f"f{at}": "" for at in range(MOST_BYTES // 100)},
            id="many-fields",
            marks=pytest.mark.part("calls"),
        ),
    ],
)
def test_what_cannot_be_read_fails_the_call(hand, asking, fields):
    call = asking()
    hand.say(hand.take(), 1, **fields)
    ending = call.end()
    assert isinstance(ending, ToolServiceCallFailed)
    assert ending.code == "SERVICE_ANSWER_INVALID"


def test_answers_that_say_nothing_at_length_fail_the_call(hand, asking):
    call = asking()
    request = hand.take()
    said = json.dumps({"response": "", "beside": "x" * 900_000})
    for n in range(1, 10):
        hand.say(request, n, body=said)
    ending = call.end()
    assert isinstance(ending, ToolServiceCallFailed)
    assert ending.code == "SERVICE_ANSWER_INVALID"


def test_a_part_that_is_missing_fails_the_call(hand, asking):
    call = asking()
    hand.say(hand.take(), 2, "end", end=True)
    assert isinstance(call.end(), ToolServiceCallFailed)


def test_a_flood_of_foreign_answers_fails_the_call(hand, asking):
    call = asking()
    request = hand.take()
    for _ in range(1_100):
        hand.say(request, 1, "x", token="guessed")
    assert isinstance(call.end(), ToolServiceCallFailed)


def test_a_process_that_falls_silent_has_lost_the_call(hand, asking, broker, queue):
    call = asking()
    request = hand.take()
    hand.say(request, 1, "half")
    broker.zrem(queue.alive, "hand")
    assert isinstance(call.end(), ToolServiceCallLost)


def test_a_broker_that_forgot_the_answers_has_lost_the_call(hand, asking, broker, queue):
    call = asking()
    broker.delete(queue.replies(hand.take().id))
    assert isinstance(call.end(), ToolServiceCallLost)


def test_a_broker_that_is_not_there_is_said_so(queue):
    client = ToolServiceClient(f"redis://127.0.0.1:{free_port()}/0")
    asked = ToolServiceRequest(queue, "u", {}, {}, 5, 1000)
    with pytest.raises(NotBegun):
        client.call(asked, stop=threading.Event(), until=None, tell=print)
    client.close()


def test_a_service_sees_requests_that_a_dead_process_had_read(ask, served, hand, broker, queue):
    """It was read but never claimed, so the next process gets it."""
    outcome = []
    call = threading.Thread(target=lambda: outcome.append(ask()))
    call.start()
    found = until(lambda: broker.xreadgroup(GROUP, "hand", {queue.requests: ">"}, block=1000))
    assert found
    with served(services.Echo(), lease_s=1):
        call.join(60)
    assert outcome
    assert Queue(queue.organization, "other").requests != queue.requests


TENANTS = 20
TAKE, GIVE_BACK = (
    hashlib.sha1(one.encode(), usedforsecurity=False).hexdigest()
    for one in (scripts.TAKE, scripts.REQUEUE)
)


class Named(Echo):
    def __init__(self, name):
        self.name = name

    def invoke(self, user, config, arguments):
        return f"{self.name} for {user}"


@pytest.fixture
def tenants(url, broker):
    """The broker URL of each organization."""
    slugs = [f"t{at}-{uuid4().hex[:8]}" for at in range(TENANTS)]
    secret = secrets.token_hex(8)
    for slug in slugs:
        broker.execute_command(
            "ACL", "SETUSER", slug, "on", f">{secret}", "resetkeys", "resetchannels",
            f"~toolcrib:{slug}:svc:*", "-@all", *(f"+{word}" for word in COMMANDS),
        )  # fmt: skip
    reader = AnnouncementReader(url)
    reader.load_scripts()
    reader.close()
    place = urlsplit(url)
    yield {
        slug: f"{place.scheme}://{slug}:{secret}@{place.netloc}{place.path}?{place.query}"
        for slug in slugs
    }
    broker.acl_deluser(*slugs)


@pytest.mark.part("calls")
def test_twenty_organizations_with_one_queue_name_get_their_own_answers(tenants, client):
    def ask(slug):
        asked = ToolServiceRequest(Queue(slug, QUEUE), f"u-{slug}", {}, {}, 60, 1000)
        return client.call(asked, stop=threading.Event(), until=None, tell=lambda _: None)

    with ExitStack() as running:
        for slug, own in tenants.items():
            running.enter_context(serve(Named(slug), own, organization=slug, concurrency=1))
        with ThreadPoolExecutor(8) as crowd:
            wanted = [*tenants] * 5
            assert list(crowd.map(ask, wanted)) == [f"{slug} for u-{slug}" for slug in wanted]


def test_what_is_one_organizations_no_other_ones_user_can_touch(tenants, broker):
    (mine, own), (other, _) = list(tenants.items())[:2]
    queue, call = Queue(other, QUEUE), uuid4().hex
    broker.xadd(queue.replies(call), {"secret": "1"})
    attempts = [
        ("XADD", queue.replies(call), "*", "id", call),
        ("XADD", announcements_key(other), "*", "document", "x"),
        ("XDEL", queue.replies(call), "0-1"),
        ("XREADGROUP", "GROUP", "service", "me", "STREAMS", queue.requests, ">"),
        ("SET", queue.claim(call), "me"),
        ("MGET", queue.cancel(call)),
        ("ZADD", queue.alive, 10**14, "me"),
        ("EVAL", "while true do end", 0),
        ("EVAL_RO", "while true do end", 0),
        ("SCRIPT", "LOAD", "while true do end"),
        ("SCRIPT", "FLUSH"),
        ("EVALSHA", GIVE_BACK, 1, queue.requests, "service", "0-1", "a", "b"),
        ("EVALSHA", TAKE, 2, Queue(mine, QUEUE).requests, queue.claim(call), *"abcde"),
        ("XRANGE", queue.replies(call), "-", "+"),
        ("FUNCTION", "LOAD", "#!lua name=x\nwhile true do end"),
        ("DEL", queue.replies(call)),
        ("KEYS", "*"),
        ("SCAN", 0),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
    ]  # fmt: skip
    with redis.Redis.from_url(own, protocol=2, decode_responses=True) as intruder:
        for words in attempts:
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|acl"):
                intruder.execute_command(*words)
    assert broker.xlen(queue.replies(call)) == 1
