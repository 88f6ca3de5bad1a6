"""Components of the MCP client: circuit breaker, events, headers, digests."""

import pytest

from tools.definitions.mcp.listed_tools import BadTool, approval_digest, well_formed_tool
from tools.mcpclient.client_pool import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    CircuitBreaker,
)
from tools.mcpclient.errors import quote_text
from tools.mcpclient.http_transports import McpEventReader
from tools.mcpclient.json_rpc import (
    JsonRpcRequest,
    encode_header_value,
    encode_reply,
    is_answer_to,
    parameter_headers,
)


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def broken(clock):
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        breaker.record_failure()
    return breaker


def test_a_breaker_opens_after_failures_in_a_row_alone(clock):
    breaker = CircuitBreaker(clock)
    for _ in range(3 * FAILURES_TO_OPEN):
        breaker.record_failure()
        breaker.record_failure()
        breaker.record_success()
    assert breaker.allows_request()


def test_an_open_breaker_allows_one_probe_after_a_pause(broken, clock):
    assert not broken.allows_request()
    clock.now += FIRST_PAUSE_S
    assert [broken.allows_request(), broken.allows_request()] == [True, False]


def test_a_successful_probe_closes_the_breaker(broken, clock):
    clock.now += FIRST_PAUSE_S
    assert broken.allows_request()
    broken.record_success()
    assert [broken.allows_request(), broken.allows_request()] == [True, True]


def test_a_failed_probe_makes_the_pause_longer_up_to_a_limit(broken, clock):
    for pause_s in (
        FIRST_PAUSE_S,
        2 * FIRST_PAUSE_S,
        4 * FIRST_PAUSE_S,
        8 * FIRST_PAUSE_S,
        LONGEST_PAUSE_S,
    ):
        clock.now += pause_s - 0.1
        assert not broken.allows_request()
        clock.now += 0.1
        assert broken.allows_request()
        broken.record_failure()


def test_a_probe_without_a_result_does_not_block_others_for_ever(broken, clock):
    clock.now += FIRST_PAUSE_S
    assert broken.allows_request(probe_s=30)
    clock.now += 30
    assert broken.allows_request()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_the_same_however_they_are_cut(end, size):
    raw = end.join([": hi", "event: x", "data: a", "data:b", "id: 7", "retry: 20", "", "data", ""])
    raw += end.join(["", "data: c", "", ""])
    data, events = raw.encode(), McpEventReader()
    found = [
        event for at in range(0, len(data), size) for event in events.feed(data[at : at + size])
    ]
    assert [(one.kind, one.data) for one in found] == [("x", b"a\nb"), ("message", b"c")]
    assert (events.last_id, events.retry_ms) == ("7", 20)


def test_a_header_carries_what_it_can_and_wraps_the_rest():
    assert encode_header_value("plain text") == "plain text"
    assert encode_header_value("a\r\nX-B: c") == "=?base64?YQ0KWC1COiBj?="
    assert encode_header_value(" a") == "=?base64?IGE=?="
    assert encode_header_value("=?base64?YQ==?=") == "=?base64?PT9iYXNlNjQ/WVE9PT89?="


def test_only_marked_scalars_become_headers():
    schema = {
        "properties": {
            "a": {"x-mcp-header": "A"},
            "b": {"properties": {"c": {"x-mcp-header": "C"}}},
            "d": {"x-mcp-header": "D"},
            "bad": {"x-mcp-header": "a b\r\n"},
        }
    }
    given = {"a": True, "b": {"c": 5}, "d": [1], "bad": "x"}
    assert parameter_headers(schema, given) == [("Mcp-Param-A", "true"), ("Mcp-Param-C", "5")]


def test_a_digest_is_of_what_is_approved_and_of_nothing_else():
    base = {"name": "a", "description": "b", "inputSchema": {"type": "object"}}
    digest = approval_digest(well_formed_tool(base).raw)
    shown = base | {"_meta": {"x": 1}, "icons": []}
    assert approval_digest(well_formed_tool(shown).raw) == digest
    for change in ({"description": "b\u200b"}, {"title": ""}, {"annotations": {}}):
        assert approval_digest(well_formed_tool(base | change).raw) != digest


def test_a_tool_is_one_object_with_a_name():
    for raw in (None, [], {}, {"name": 1}, {"name": ""}, {"name": "a", "inputSchema": [1]}):
        with pytest.raises(BadTool):
            well_formed_tool(raw)


def test_an_answer_has_the_exact_id_of_its_request():
    request = JsonRpcRequest("x", id=1)
    assert is_answer_to({"id": 1, "result": {}}, request)
    assert is_answer_to({"id": None, "error": {}}, request)
    for other in ({"id": True, "result": {}}, {"id": "1", "result": {}}, {"id": 1, "method": "x"}):
        assert not is_answer_to(other, request)


def test_a_notification_has_no_reply():
    assert encode_reply({"method": "ping"}) is None
    assert encode_reply({"method": "ping", "id": {}}) is None


def test_what_is_quoted_is_bounded_and_plain():
    assert quote_text("a\x1b[31m\u202e") == "a\ufffd[31m\ufffd"
    assert len(quote_text("x" * 10_000)) < 2_100
    assert quote_text({"a": 1}) == ""


@pytest.mark.parametrize("number", [2**53, -(2**53), -0.0, 1e308, 2**64 - 1])
def test_a_digest_is_of_any_number_that_a_server_may_send(number):
    schema = {"type": "object", "properties": {"a": {"maximum": number}}}
    assert approval_digest(well_formed_tool({"name": "t", "inputSchema": schema}).raw)
