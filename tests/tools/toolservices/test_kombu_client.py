"""Tool services over kombu, with its own queues at the existing broker."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.conf import settings
from kombu.connection import Connection
from kombu.messaging import Producer

from config.external_servers import CeleryBroker, find_broker, read_brokers
from tests.conditions import until
from tests.crib import CHECKOUT
from tests.tools.toolservices import services
from toolcrib_service import serve
from toolcrib_service.queue_protocol import Queue, broker_message
from tools.toolservices.answer_stream import (
    AnswerAssembly,
    NotBegun,
    TimedOut,
    ToolServiceCallCancelled,
    ToolServiceCallFailed,
)
from tools.toolservices.kombu_client import KombuClient, _OrderedAnswers
from tools.toolservices.redis_client import ToolServiceRequest


@pytest.fixture
def options(slug):
    return {"global_keyprefix": f"elsewhere-{slug}:", "polling_interval": 0.05}


@pytest.fixture
def place(servers_in):
    return settings.CELERY_BROKER_URL


@pytest.fixture
def client(place, options):
    made = KombuClient(CeleryBroker(place, options))
    yield made
    made.close()


@pytest.fixture
def served(place, options, slug):
    return lambda service, **more: serve(
        service, place, organization=slug, options=options, concurrency=2, **more
    )


@pytest.fixture
def ask(client, queue):
    def call(*, received=None, stop=None, timeout_s=30, **fields):
        asked = ToolServiceRequest(
            **{"queue": queue, "user": "alice", "config": {}, "arguments": {},
               "timeout_s": timeout_s, "most_bytes": 1_000_000, **fields}
        )  # fmt: skip
        received = [] if received is None else received
        return client.call(asked, stop=stop or threading.Event(), until=None, tell=received.append)

    return call


def test_the_envelope_arrives_and_what_is_no_text_comes_back_as_json(ask, served):
    with served(services.Echo()):
        text = ask(config={"style": "pun"}, arguments={"topic": "Grüße"})
    assert json.loads(text) == {
        "user": "alice", "config": {"style": "pun"}, "arguments": {"topic": "Grüße"},
    }  # fmt: skip


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    ("service", "chunks"),
    [
        (services.Streamed, ["one ", "two ", '{"three": 3}']),
        (services.AsyncStreamed, ["a", "b", "c"]),
    ],
)
def test_chunks_are_passed_on_and_the_answer_is_all_of_them(ask, served, service, chunks):
    received = []
    with served(service()):
        assert ask(received=received) == "".join(chunks)
    assert received == chunks


@pytest.mark.part("calls")
def test_a_long_text_comes_in_pieces_and_whole(ask, served):
    class Long(services.Echo):
        def invoke(self, user, config, arguments):
            return "é" * 200_000

    with served(Long()):
        assert ask() == "é" * 200_000


@pytest.mark.part("calls")
def test_only_its_own_kind_of_failure_passes_a_services_words(ask, served, caplog):
    with (
        served(services.Failing()),
        pytest.raises(ToolServiceCallFailed, match="out-of-jokes") as caught,
    ):
        ask()
    assert caught.value.code == "TOOL_ERROR"
    with served(services.Broken()), pytest.raises(ToolServiceCallFailed) as caught:
        ask()
    assert "swordfish" not in str(caught.value)


@pytest.mark.part("calls")
def test_an_answer_beyond_what_the_tool_may_return_fails(ask, served):
    with served(services.Streamed()), pytest.raises(ToolServiceCallFailed) as caught:
        ask(most_bytes=5)
    assert caught.value.code == "OUTPUT_LIMIT"


@pytest.mark.part("calls")
def test_calls_at_once_get_their_own_answers(ask, served):
    found = {}

    def call(number):
        found[number] = json.loads(ask(arguments={"n": number}))["arguments"]["n"]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    with served(services.Echo()):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: number for number in range(8)}


def test_a_request_waits_for_a_service_that_comes_later(ask, served):
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(ask()))
    waiting.start()
    with served(services.Async()):
        waiting.join(30)
    assert answers == ["hello alice"]


def test_a_call_without_an_answer_ends_when_its_time_is_over(ask):
    with pytest.raises(TimedOut):
        ask(timeout_s=0.5)


@pytest.mark.part("calls")
def test_a_request_whose_time_is_over_is_not_performed(ask, served):
    service = services.Held()
    with pytest.raises(TimedOut):
        ask(timeout_s=0.3)
    with served(service):
        with pytest.raises(TimedOut):
            ask(timeout_s=0.5)
        service.go.set()
    assert service.begun.acquire(blocking=False)
    assert not service.begun.acquire(blocking=False)


@pytest.mark.part("calls")
def test_who_gives_up_does_not_know_whether_it_began(ask, served):
    service, stop = services.Held(), threading.Event()

    def give_up():
        service.begun.acquire(timeout=30)
        stop.set()

    threading.Thread(target=give_up).start()
    with served(service):
        with pytest.raises(ToolServiceCallCancelled) as caught:
            ask(stop=stop)
        service.go.set()
    assert caught.value.begun


@pytest.mark.part("calls")
def test_a_broker_that_is_not_there_began_nothing(queue):
    unreachable_client = KombuClient(CeleryBroker("amqp://guest:swordfish@127.0.0.1:1//"))
    asked = ToolServiceRequest(queue, "alice", {}, {}, 10, 1000)
    with pytest.raises(NotBegun) as caught:
        unreachable_client.call(asked, stop=threading.Event(), until=None, tell=str)
    assert caught.value.code == "SERVICE_UNAVAILABLE" and "swordfish" not in str(caught.value)
    assert "swordfish" not in repr(unreachable_client._broker)
    unreachable_client.close()


@pytest.mark.part("calls")
def test_unrequested_and_forged_answers_change_nothing(ask, served, place, options, client):
    """An attacker who can write to the broker, and does not know the token of the call."""

    class Forging(services.Echo):
        def invoke(self, user, config, arguments):
            (back,) = {one.place for one in client._listeners.values()}
            with Connection(place, transport_options=options) as connection:
                for call in (*client._waiting, "0" * 32):
                    body = json.dumps({"response": "forged", "end_of_stream": True})
                    fields = {"id": call, "token": "guess", "n": "1", "body": body}
                    Producer(connection).publish(**broker_message(back, fields))
            return "mine"

    with served(Forging()):
        assert ask() == "mine"


@pytest.mark.part("calls")
def test_a_request_that_is_none_or_wants_its_answer_elsewhere_is_dropped(
    ask, served, place, options, queue
):
    with Connection(place, transport_options=options) as connection:
        for fields, back in (
            ({"id": "x", "token": "t", "deadline_ms": "1", "body": "{"}, "here"),
            ({"id": "a" * 32, "token": "t", "deadline_ms": "9" * 14,
              "body": '{"user": "u", "config": "{}", "arguments": "{}"}'}, "toolcrib:other:svc:x"),
        ):  # fmt: skip
            Producer(connection).publish(**broker_message(queue.requests, fields, reply_to=back))
    with served(services.Async()):
        assert ask() == "hello alice"


@pytest.mark.part("faults")
def test_two_processes_share_a_queue_and_a_killed_one_loses_its_call_alone(
    ask, slug, place, options, tmp_path
):
    environment = os.environ | {
        "TOOLCRIB_BROKER_URL": place,
        "TOOLCRIB_BROKER_OPTIONS": json.dumps(options),
        "SERVICE_LOG": str(tmp_path / "log"),
    }
    command = [
        sys.executable, "-m", "toolcrib_service", "tests.tools.toolservices.services.Slow",
        "--organization", slug, "--concurrency", "1",
    ]  # fmt: skip
    running = [
        subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    ends, answered = {}, threading.Event()

    def call(number):
        try:
            ends[number] = ask(timeout_s=90, stop=answered)
        except ToolServiceCallCancelled:
            ends[number] = "lost"

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    try:
        for thread in threads:
            thread.start()
        begun = until(lambda: _started_calls(tmp_path / "log", 2))
        assert sorted(begun) == sorted(one.pid for one in running)
        running[0].kill()
        (tmp_path / "log").with_suffix(".go").touch()
        until(lambda: len(ends) == 1)
        assert ask() == f"done by {running[1].pid}"
    finally:
        answered.set()  # calls without an answer will not get one
        for one in running:
            one.kill()
            one.wait()
        for thread in threads:
            thread.join(90)
    assert sorted(ends.values()) == [f"done by {running[1].pid}", "lost"]
    assert len(_started_calls(tmp_path / "log", 0)) == 3


def _started_calls(log: Path, least: int) -> list[int] | None:
    found = [int(line) for line in log.read_text().split()] if log.exists() else []
    return found if len(found) >= least else None


def test_the_operator_says_where_a_service_is():
    brokers = read_brokers({"jokes": "amqp://a//", "acme/jokes": {"url": "sqs://", "options": {}}})
    assert find_broker(brokers, "acme", "jokes") == CeleryBroker("sqs://")
    assert find_broker(brokers, "other", "jokes") == CeleryBroker("amqp://a//")
    assert find_broker(brokers, "acme", "puns") is None


@pytest.mark.parametrize(
    "wrong",
    [[], {"a": 7}, {"a": "no url, swordfish"}, {"a b": "amqp://"}, {"a": {"url": "x://", "u": 1}},
     {"a": {"url": "x://", "options": []}}, {1: "amqp://"}, {"a": {}}],
)  # fmt: skip
def test_what_names_no_broker_is_said_without_its_secrets(wrong):
    with pytest.raises(ValueError, match=r".") as caught:
        read_brokers(wrong)
    assert "swordfish" not in str(caught.value)


def test_answers_that_come_in_another_order_are_joined_in_their_own():
    gathering = AnswerAssembly("c", "t", most_bytes=100, tell=str)
    ordered = _OrderedAnswers(gathering, "t")
    for number, text in ((3, "c"), (1, "a"), (2, "b"), (2, "x")):
        body = json.dumps({"response": text, "end_of_stream": number == 3})
        ordered.take({"id": "c", "token": "t", "n": str(number), "body": body})
    assert gathering.done and gathering.text == "abc"


def test_the_queue_is_in_the_organizations_own_prefix(slug):
    assert Queue(slug, services.QUEUE).requests.startswith(f"toolcrib:{slug}:svc:")
