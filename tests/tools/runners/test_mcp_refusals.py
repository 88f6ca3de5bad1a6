"""Answers of MCP servers that are refused, and failures: what the caller sees of them."""

import json

import pytest

from tests import factories
from tests.stubs.mcp import Error, streamed, text
from tests.stubs.web import Reply
from tests.tools.runners.conftest import LINK, PNG, PROMISED, ask, part
from tools.agents.steps import call_rows, observation_text
from tools.catalog.actions import update_tool
from tools.catalog.mcp import mcp_servers
from tools.catalog.registry import registry
from tools.definitions.results import Status
from tools.errors import Refused
from tools.execution.call import Result
from tools.execution.outputs import redact_execution
from tools.execution.run import apply_definition
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed", "loopback_is_open")

JSON_KIND = [("Content-Type", "application/json")]
NULLS = {"type": "http", "implementation": {"method": "GET", "url": "https://a.example.com/null"}}


@pytest.fixture
def refused_nulls(organization):
    """How an output is handled that has a null against its schema."""

    def settled(output, **fields):
        schema = {"type": "object", "properties": {"foo": {"type": "string"}}}
        factories.tool(organization, "nulls", parameters=[], output_schema=schema, **fields)
        organization.refresh_from_db()
        tool = registry.snapshot(organization.pk, organization.revision).tool("nulls")
        result = Result(Status.SUCCESS, output=output)
        apply_definition(tool, result)
        assert (result.error_code, result.output) == ("OUTPUT_INVALID", None)
        assert result.error_details["places"] == ["/foo"]
        return result.error_details.get("answer")

    return settled


def test_a_null_that_the_schema_of_an_http_tool_does_not_allow_is_refused_with_the_answer(
    refused_nulls,
):
    assert refused_nulls({"foo": None}, **NULLS) == '{"foo": null}'


def test_a_long_answer_of_an_http_tool_is_cut(refused_nulls):
    answer = refused_nulls({"foo": None, "more": "x" * 9_000}, **NULLS)
    assert len(answer) == 4_001 and answer.endswith("x…")


@pytest.mark.parametrize(
    "fields",
    [
        NULLS | {"transform": {"redact": ["$.token"]}},
        NULLS | {"transform": {"select": "$"}},
        {"type": "code", "implementation": {"source": "def main(p):\n    return 1\n"}},
    ],
    ids=["redacts", "selects", "code"],
)
def test_an_invalid_output_of_code_or_of_what_redacts_is_not_shown_at_all(refused_nulls, fields):
    assert refused_nulls({"foo": None, "token": "abc"}, **fields) is None


def test_a_refused_answer_is_a_text_in_the_details_and_no_output_anywhere(agent, imported, stub):
    """The result is kept in the error's details, and is not used as an output."""
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    imported(delivery="pure", cache_ttl="PT5M")
    sent = {"n": None, "note": "it was sent"}
    stub.tools["echo"].does = lambda given: text("it was sent", structuredContent=sent)
    done, again = ask(agent), ask(agent)
    assert json.loads(done.error_details["answer"]) == sent
    assert (done.output, done.observation, done.output_digest) == (None, "", "")
    assert not again.cached and len(stub.requests_for("tools/call")) == 2
    shown = factories.api(agent).get(f"/executions/{done.pk}").json()
    assert (shown["output"], shown["observation"]) == (None, "")
    assert factories.api(agent).get(f"/executions/{done.pk}/output").status_code == 404
    with pytest.raises(Refused):
        ask(agent, a={"$result": str(done.pk), "path": "/output/note"})
    (read_by_a_model,) = call_rows(Execution.objects.filter(pk=done.pk)).values()
    assert "it was sent" not in observation_text(read_by_a_model)


def test_a_refused_answer_is_masked_and_bounded(agent, answered, stub):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    sent = {"n": None, "key": "swordfish-1", "rest": "é" * 9_000}
    answer = answered(text("x", structuredContent=sent)).error_details["answer"]
    assert "swordfish-1" not in answer and "[credential]" in answer
    assert len(answer) == 4_001 and answer.endswith("…")


@pytest.mark.parametrize(
    "result",
    [
        text("x", structuredContent={"n": None, "token": "abc-of-ada"}),
        text('{"n": null, "token": "abc-of-ada"}'),
        {"token": "abc-of-ada"},
        {"isError": True, "content": [], "structuredContent": {"token": "abc-of-ada"}},
    ],
    ids=["structure", "text", "no-result", "failure"],
)
@pytest.mark.parametrize("transform", [{"redact": ["$.token"]}, {"select": "$.n"}])
def test_where_a_definition_redacts_or_selects_nothing_else_of_an_answer_is_shown(
    agent, imported, stub, result, transform
):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    tool = imported(output_schema={} if "select" in transform else PROMISED)
    changed = tool.version.definition | {"transform": transform}
    update_tool(tool=tool, definition=changed, by=factories.actor(agent.organization))
    stub.tools["echo"].does = lambda given: result
    done = ask(agent)
    if done.status == "Success":
        assert done.output is None  # only the selected part is shown
    shown = f"{done.output} {done.observation} {done.error_message} {done.error_details}"
    assert "abc-of-ada" not in shown


def test_a_refused_answer_is_redacted_on_pages_as_an_output_is(agent, answered, stub):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    sent = {"n": None, "password": "hunter2"}
    done = answered(text("x", structuredContent=sent))
    assert "hunter2" in done.error_details["answer"]
    shown = redact_execution(Execution.objects.select_related("tool_version").get(pk=done.pk))
    assert "hunter2" not in str(shown) and '"n": null' in shown["error_details"]["answer"]
    long = answered(text("x", structuredContent=sent | {"rest": "x" * 9_000}))
    shown = redact_execution(Execution.objects.select_related("tool_version").get(pk=long.pk))
    assert (shown["error_details"]["answer"], shown["error_details"]["places"]) == ("", ["/n"])


def test_what_a_failure_says_in_structure_alone_reaches_the_caller(agent, answered):
    reason = {"code": "E_RATE", "message": "quota of 5 used up"}
    done = answered({"isError": True, "content": [], "structuredContent": reason})
    assert (done.error_code, done.error_message) == ("TOOL_ERROR", "quota of 5 used up")
    assert done.error_details["data"] == reason


@pytest.mark.parametrize(
    ("structured", "message"),
    [
        ({"error": {"detail": "no such row"}}, "no such row"),
        ({"ok": False, "n": 7}, '{"ok": false, "n": 7}'),
        ([1, 2], "[1, 2]"),
        ("plain", "plain"),
    ],
)
def test_a_failure_without_words_says_its_structure(agent, answered, structured, message):
    done = answered({"isError": True, "structuredContent": structured})
    assert (done.error_code, done.error_message) == ("TOOL_ERROR", message)


def test_a_link_in_a_failure_is_kept_beside_its_words(agent, answered):
    done = answered({"isError": True, "content": [part("see there"), LINK]})
    assert done.error_message == "see there"
    assert done.error_details["data"] == {"content": [LINK]}


def test_an_image_of_a_failure_is_named_without_its_bytes(agent, answered):
    done = answered({"isError": True, "content": [part("see the picture"), PNG]})
    assert done.error_details["data"] == {"content": [{"type": "image", "mimeType": "image/png"}]}


def test_a_failure_marked_by_a_text_is_a_failure(agent, answered):
    done = answered({"isError": "true", "content": [part("no")]})
    assert (done.status, done.error_message) == ("Failed", "no")


def test_the_data_of_an_error_of_the_protocol_reaches_the_caller(agent, imported, stub):
    imported()
    data = {"field": "city", "hint": "use ISO code"}

    def refuses(given):
        raise Error(-32602, "Invalid params", data)

    stub.tools["echo"].does = refuses
    done = ask(agent)
    assert done.error_code == "UPSTREAM_ERROR"
    assert "error -32602: Invalid params" in done.error_message
    assert done.error_details["data"] == data


def test_data_is_masked_and_bounded(agent, imported, stub):
    imported()

    def refuses(given):
        raise Error(-1, "no", {"sent": "swordfish-1", "trace": ["x" * 100] * 1_000})

    stub.tools["echo"].does = refuses
    done = ask(agent)
    assert "swordfish-1" not in str(done.error_details)
    assert "[credential]" in str(done.error_details)
    assert len(str(done.error_details)) < 4_200


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(400, [("Content-Type", "text/plain")], b"city\nis unknown"), "city is unknown"),
        (Reply(422, JSON_KIND, b'{"detail": "city is unknown"}'), "city is unknown"),
        (Reply(429, JSON_KIND, b'{"detail": "5 a minute"}'), "5 a minute"),
        (Reply(403, JSON_KIND, b'{"detail": "plan has no access"}'), "plan has no access"),
        (Reply(500, JSON_KIND, b'"boom"'), "boom"),
    ],
    ids=["text", "422", "429", "403", "500"],
)
def test_what_a_refusal_of_http_says_reaches_the_caller(agent, imported, stub, reply, words):
    imported()
    stub.instead["tools/call"] = reply
    done = ask(agent)
    assert done.status == "Failed"
    assert words in str(done.error_details["data"])


def test_a_tool_that_is_listed_in_a_way_that_cannot_be_used_is_not_called(agent, imported, stub):
    imported()
    one = stub.tools["echo"].listed("echo")
    stub.list_more = {"tools": [one, one | {"description": "Other."}]}
    done = ask(agent)
    assert done.error_code == "UPSTREAM_CHANGED"
    assert "listed twice" in done.error_message
    assert not stub.requests_for("tools/call")


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/mcp/", "/mcp/; that is not followed: enter that address."),
        ("https://mcp.example/v2?key=secret", "https://mcp.example/v2; that is not followed"),
        ("http://user:pw@h/", "redirects (status 307); that is not followed."),
        ("", "redirects (status 307); that is not followed."),
    ],
)
def test_a_redirect_says_where_to(server, stub, admin_api, location, words):
    stub.instead["server/discover"] = stub.instead["initialize"] = Reply(
        307, [("Location", location)]
    )
    refused = admin_api.post("/mcp-servers/far/refresh", {})
    assert refused.status_code == 503
    assert words in refused.json()["message"]
    assert "secret" not in refused.json()["message"]


def test_a_redirect_of_a_server_of_2024_says_where_to(organization, stub, admin_api):
    stub.web.replies["/sse"] = Reply(308, [("Location", "/v2/sse?token=secret")])
    server = {"name": "old", "url": stub.web.url("/sse"), "transport": "sse"}
    mcp_servers.create_server(
        organization=organization, server=server, by=factories.actor(organization)
    )
    refused = admin_api.post("/mcp-servers/old/refresh", {}).json()
    assert "/v2/sse; that is not followed: enter that address." in refused["message"]
    assert "secret" not in refused["message"]


def test_a_refusal_of_the_list_says_its_data(server, stub, admin_api):
    def refuses(message):
        error = {"code": -32000, "message": "no seat", "data": {"plan": "free"}}
        return streamed([{"jsonrpc": "2.0", "id": message["id"], "error": error}])

    stub.instead["tools/list"] = refuses
    refused = admin_api.post("/mcp-servers/far/refresh", {}).json()
    assert "no seat" in refused["message"]
    assert refused["details"]["data"] == {"plan": "free"}
