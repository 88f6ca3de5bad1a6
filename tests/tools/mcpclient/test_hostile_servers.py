"""Hostile MCP servers: everything that is read from them is bounded, and the worker continues."""

import asyncio
import itertools
import queue
from concurrent.futures import Future

import pytest

from tests.stubs.mcp import Tool, as_json, streamed, text
from tests.stubs.web import Raw, Reply, endless
from tools.httpclient.outbound import EventLoopThread
from tools.mcpclient.client_pool import CallStopped, _CallWaiter
from tools.mcpclient.errors import AnswerLost, InvalidAnswer, UpstreamFailure, UpstreamRefused
from tools.mcpclient.json_rpc import LONG_MESSAGE_BYTES, JsonRpcRequest, parse_message_in_thread
from tools.mcpclient.tool_lists import LONGEST_LIST_BYTES

JSON = [("Content-Type", "application/json")]
STREAM = [("Content-Type", "text/event-stream")]


def answered(body, headers=JSON):
    return Reply(200, headers, body)


def deep(message):
    return answered(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000)


def other_id(message):
    return as_json({"jsonrpc": "2.0", "id": message["id"] + 1, "result": text("x")})


def id_as_text(message):
    return as_json({"jsonrpc": "2.0", "id": str(message["id"]), "result": text("x")})


def id_as_truth(message):
    return as_json({"jsonrpc": "2.0", "id": True, "result": text("x")})


UNUSABLE = {
    "no-json": answered(b"hello"),
    "no-object": answered(b"[1]"),
    "no-jsonrpc": answered(b'{"id":1,"result":{}}'),
    "deep": deep,
    "integer": answered(b'{"jsonrpc":"2.0","id":1,"result":{"a":%s}}' % (b"9" * 301)),
    "twice": answered(b'{"jsonrpc":"2.0","id":1,"id":1,"result":{}}'),
    "wrong-id": other_id,
    "id-as-text": id_as_text,
    "id-as-truth": id_as_truth,
    "wrong-id-in-a-stream": streamed([{"jsonrpc": "2.0", "id": 99, "result": {}}]),
    "other-kind": answered(b"<html>", [("Content-Type", "text/html")]),
    "result-no-object": lambda message: as_json(
        {"jsonrpc": "2.0", "id": message["id"], "result": 1}
    ),
    "parts-no-list": lambda message: as_json(
        {"jsonrpc": "2.0", "id": message["id"], "result": {"content": "x"}}
    ),
    "neither-parts-nor-structure": lambda message: as_json(
        {"jsonrpc": "2.0", "id": message["id"], "result": {"done": True}}
    ),
    "task": lambda message: as_json(
        {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "task", "taskId": "x"}}
    ),
    "huge": lambda message: Reply(200, JSON, itertools.repeat(b" " * 65536)),
    "endless-line": lambda message: Reply(200, STREAM, itertools.repeat(b"x" * 65536)),
    "endless-event": lambda message: Reply(200, STREAM, itertools.repeat(b"data: xxx\n" * 999)),
    "endless-comments": lambda message: Reply(200, STREAM, itertools.repeat(b": x\n" * 9999)),
    "no-http": Raw([b"SSH-2.0-OpenSSH\r\n\r\n"]),
    "endless-headers": Raw(itertools.repeat(b"X-A: b\r\n" * 999, 100)),
}


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize("reply", UNUSABLE.values(), ids=UNUSABLE)
def test_an_invalid_answer_is_refused(modern, connect, reply):
    one = connect(modern)
    one.tools()
    modern.instead["tools/call"] = reply
    with pytest.raises((InvalidAnswer, AnswerLost)):
        one.call()
    modern.instead.clear()
    assert one.call().output == "{}"


@pytest.mark.parametrize("body", [b"", b"x" * 1000], ids=["nothing", "much"])
def test_a_refusal_with_any_body_is_a_refusal(modern, connect, body):
    modern.instead["server/discover"] = Reply(401, body=body)
    with pytest.raises(UpstreamRefused):
        connect(modern).call()


def test_a_call_to_a_server_that_never_completes_its_answer_times_out(modern, connect):
    modern.instead["tools/call"] = lambda message: Reply(200, STREAM, itertools.repeat(b": \n"))
    with pytest.raises((CallStopped, UpstreamFailure)):
        connect(modern).call(timeout_s=0.5)


def test_a_list_of_too_many_tools_is_refused(modern, connect):
    modern.tools = {f"t{n}": Tool() for n in range(1_001)}
    with pytest.raises(InvalidAnswer, match="more than 1000 tools"):
        connect(modern).tools()


def test_a_list_of_too_many_bad_tools_is_refused(modern, connect):
    modern.list_more = {"tools": [{}] * 2_001}
    with pytest.raises(InvalidAnswer, match="more than 1000 tools"):
        connect(modern).tools()


def test_a_list_that_brings_new_tools_for_ever_is_refused(modern, connect):
    def page(message):
        at = len(modern.requests_for("tools/list"))
        result = {"tools": [Tool().listed(f"t{at}")], "nextCursor": "more"}
        return as_json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    modern.instead["tools/list"] = page
    with pytest.raises(InvalidAnswer, match="more than 50 pages"):
        connect(modern).tools()


def test_a_session_that_no_header_can_carry_is_refused(handshake, connect):
    answer = {"protocolVersion": "2025-11-25", "capabilities": {}}
    handshake.instead["initialize"] = lambda message: as_json(
        {"jsonrpc": "2.0", "id": message["id"], "result": answer},
        [("Mcp-Session-Id", "a b")],
    )
    with pytest.raises(InvalidAnswer, match="named its session"):
        connect(handshake).call()


def test_an_unknown_version_is_refused(handshake, connect):
    handshake.era = "2031-01-01"
    with pytest.raises(InvalidAnswer, match="no version"):
        connect(handshake).call()


def test_an_endless_answer_to_the_first_question_ends(modern, connect):
    modern.instead["server/discover"] = endless(b" " * 65536)
    modern.instead["initialize"] = endless(b" " * 65536)
    with pytest.raises(UpstreamFailure):
        connect(modern).call()


def test_all_pages_together_are_bounded(modern, connect):
    modern.page_size = 1
    most = LONGEST_LIST_BYTES // 400_000 + 2
    modern.tools = {
        f"t{at}": Tool(more={"annotations": {"x": "y" * 400_000}}) for at in range(most)
    }
    with pytest.raises(InvalidAnswer, match="tools of more than"):
        connect(modern).tools()


def test_reading_a_long_message_does_not_block_the_event_loop():
    raw = b'{"jsonrpc":"2.0","a":[' + b"[[]]," * 400_000 + b"[]]}"
    assert len(raw) > LONG_MESSAGE_BYTES

    async def turns():
        count, reading = 0, asyncio.ensure_future(parse_message_in_thread(raw))
        while not reading.done():
            count += 1
            await asyncio.sleep(0)
        await reading
        return count

    loop = EventLoopThread()
    try:
        assert loop.submit(turns()).result(30) > 10
    finally:
        loop.close()


def test_continuous_progress_does_not_delay_the_timeout():
    words, passed = queue.Queue(), []
    words.put("x")

    def pass_on(word):
        passed.append(word)
        assert len(passed) < 1_000
        words.put(word)

    watch = _CallWaiter(JsonRpcRequest("tools/call"), 0.1, progress=words, on_progress=pass_on)
    with pytest.raises(CallStopped):
        watch.result(Future())
