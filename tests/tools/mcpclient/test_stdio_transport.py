"""Stdio servers that the product starts: one message a line, in both eras, inside the sandbox."""

import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings

from sandbox.errors import ErrorCode, RunRefused
from sandbox.server_client import start_server
from sandbox.spec import ServerSpec
from tests.conditions import until
from tests.sandbox.run_observer import pidfds_of
from tests.stubs.stdio_server import MODERN
from tools.mcpclient import client_pool, transports
from tools.mcpclient.client_pool import CallStopped, McpClientPool, McpEndpoint
from tools.mcpclient.errors import AnswerLost, InvalidAnswer, UpstreamUnavailable
from tools.mcpclient.transports import StdioTransport

PATIENCE_S = 60.0
STUB = (Path(__file__).parents[2] / "stubs" / "stdio_server.py").read_text()
KEY = "sw0rdfish"


class Stub:
    """A client pool and the stub inside the sandbox; `starts` counts its processes."""

    def __init__(self, era=MODERN, **options):
        self.pool, self.era, self.starts, self.refusal = McpClientPool(), era, 0, None
        self.marker = uuid4().hex
        self.endpoint = McpEndpoint("s", "s:1", self._transport, **options)

    def _transport(self):
        return StdioTransport(self._start, [KEY])

    def _start(self):
        if self.refusal is not None:
            raise self.refusal
        self.starts += 1
        command = (f"{sys.base_prefix}/bin/python3", "-c", STUB, self.era, self.marker)
        spec = ServerSpec(
            "stdio-tests", command, programs=(sys.base_prefix,), environment=(("KEY", KEY),)
        )
        return start_server(settings.SANDBOX_SOCKET, None, spec)

    def alive(self):
        """The number of its processes."""
        found = pidfds_of(self.marker)
        for pidfd in found:
            os.close(pidfd)
        return len(found)

    def call(self, name="echo", arguments=None, **options):
        options.setdefault("timeout_s", PATIENCE_S)
        return self.pool.call_tool(self.endpoint, name, arguments or {}, **options)[0].output

    def tools(self):
        return self.pool.list_tools(self.endpoint, PATIENCE_S).tools


@pytest.fixture
def stub(servers_in):
    made = []

    def make(*words, **options):
        made.append(Stub(*words, **options))
        return made[-1]

    yield make
    for one in made:
        one.pool.close()


@pytest.mark.parametrize(
    ("era", "agreed", "starts"),
    [
        (MODERN, MODERN, 1),
        ("2025-11-25", "2025-11-25", 2),
        ("2024-11-05", "2024-11-05", 2),
        ("quits", "2025-11-25", 2),
    ],
)
def test_each_era_is_spoken(stub, era, agreed, starts):
    one = stub(era)
    assert one.call("echo", {"a": 1}) == '{"a": 1}'
    assert one.pool.version(one.endpoint) == agreed
    assert one.starts == starts


def test_the_version_agreed_on_last_is_tried_first(stub):
    one = stub("2025-11-25", last_version="2025-11-25")
    one.call()
    assert one.starts == 1


def test_one_process_serves_many_calls_and_lists(stub):
    one = stub()
    assert "echo" in one.tools()
    assert len({one.call("born") for _ in range(3)}) == 1
    assert one.starts == 1


def test_its_environment_is_its_own(stub):
    assert stub().call("key") == KEY


def test_progress_is_heard(stub):
    heard = []
    stub().call("progress", on_progress=heard.append)
    assert heard == ["on it (1)", "on it (2)"]


def test_a_call_that_is_given_up_is_cancelled_and_the_process_stays(stub):
    one = stub()
    born = one.call("born")
    with pytest.raises(CallStopped) as stopped:
        one.call("wait", timeout_s=0.3)
    assert stopped.value.sent and stopped.value.timed_out
    assert until(lambda: "notifications/cancelled" in one.call("heard"))
    assert one.call("born") == born


def test_a_server_that_dies_during_a_call_loses_it_and_is_restarted(stub):
    one = stub()
    born = one.call("born")
    with pytest.raises(AnswerLost, match="It said last: fatal: oh no"):
        one.call("die", {"words": "oh no"})
    assert one.call("born") != born
    assert one.starts == 2


def test_the_quotation_of_its_output_has_no_secret(stub):
    with pytest.raises(AnswerLost) as lost:
        stub().call("die", {"words": "key is"})
    assert KEY not in str(lost.value) and "fatal: key is •••" in str(lost.value)


@pytest.mark.part("calls")
def test_a_server_that_always_dies_is_left_alone_for_a_while(stub):
    one = stub()
    for _ in range(5):
        with pytest.raises(AnswerLost):
            one.call("die")
    starts = one.starts
    with pytest.raises(UpstreamUnavailable, match="could not be reached recently"):
        one.call()
    assert one.starts == starts


@pytest.mark.parametrize("name", ["garbage", "surrogate", "deep"])
def test_a_line_that_is_no_message_is_passed_over(stub, name):
    assert stub().call(name) == "done"


@pytest.mark.parametrize(
    ("name", "most_unrequested"),
    [
        ("litter", transports._MOST_UNREQUESTED_BYTES),
        pytest.param(
            "endless", transports._MOST_UNREQUESTED_BYTES, marks=pytest.mark.part("calls")
        ),
        pytest.param("chatter", 1_000_000, marks=pytest.mark.part("calls")),
        pytest.param(
            "chatter", transports._MOST_UNREQUESTED_BYTES, marks=pytest.mark.part("generated")
        ),
    ],
)
def test_a_server_that_sends_too_much_is_ended_and_the_next_call_starts_another(
    stub, name, most_unrequested, monkeypatch
):
    monkeypatch.setattr(transports, "_MOST_UNREQUESTED_BYTES", most_unrequested)
    one = stub()
    with pytest.raises(InvalidAnswer):
        one.call(name)
    assert one.call() == "{}"
    assert one.starts == 2


def test_a_server_that_cannot_be_started_is_unavailable(stub):
    one = stub()
    one.refusal = RunRefused(ErrorCode.LAUNCH_FAILED, "too many servers run here already")
    with pytest.raises(UpstreamUnavailable, match="too many servers"):
        one.call()
    one.refusal = ConnectionRefusedError("no")
    with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
        one.call()


@pytest.mark.part("calls")
def test_closing_the_pool_or_forgetting_the_server_ends_its_process(stub):
    one, other = stub(), stub()
    one.call()
    other.call()
    assert (one.alive(), other.alive()) == (1, 1)
    one.pool.close()
    other.pool.forget_server("s")
    assert until(lambda: one.alive() == other.alive() == 0)


@pytest.mark.part("calls")
def test_an_idle_server_is_reaped(stub, monkeypatch):
    monkeypatch.setattr(client_pool, "IDLE_S", 0.0)
    monkeypatch.setattr(client_pool, "_CLEANUP_INTERVAL_S", 0.1)
    one = stub()
    one.call()
    assert until(lambda: one.alive() == 0)
    assert one.call() == "{}"


@pytest.mark.part("calls")
def test_another_configuration_takes_the_place_of_the_one_before(stub):
    one = stub()
    for key in ("s:1", "s:2", "s:3"):
        endpoint = McpEndpoint("s", key, one._transport, holder="me")
        one.pool.call_tool(endpoint, "born", {}, timeout_s=PATIENCE_S)
    other = McpEndpoint("s", "s:4", one._transport, holder="another")
    one.pool.call_tool(other, "born", {}, timeout_s=PATIENCE_S)
    assert until(lambda: one.alive() == 2)


def test_two_holders_of_credentials_have_a_process_each(stub):
    one = stub()
    other = McpEndpoint("s", "s:2", one._transport)
    mine = one.call("born")
    assert one.pool.call_tool(other, "born", {}, timeout_s=PATIENCE_S)[0].output != mine
    assert one.starts == 2
