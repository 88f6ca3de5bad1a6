"""Results of MCP servers through the whole execution pipeline: no part of a result is dropped."""

import json
from decimal import Decimal

import pytest

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.conditions import until
from tests.stubs.mcp import text
from tests.stubs.web import Reply
from tests.tools.approval_requests import ended_execution
from tests.tools.execution.in_process_worker import work_off
from tests.tools.runners.conftest import LINK, PNG, PROMISED, ask, part
from tools.catalog.actions import update_tool
from tools.definitions.values.strict_json import MAX_DIGITS
from tools.execution import answer
from tools.execution.outputs import redact_execution
from tools.execution.perform import perform
from tools.models import Execution
from tools.models import Tool as ToolRow

pytestmark = pytest.mark.usefixtures("committed", "loopback_is_open")

SNOWFLAKE = 1917043659912705296
INTEGERS = [SNOWFLAKE, -SNOWFLAKE, 2**53 + 1, 2**63, 2**64 - 1, 2**256 - 1, 10**23]
JSON_KIND = [("Content-Type", "application/json")]


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("number", INTEGERS)
def test_an_integer_is_exact_in_output_observation_api_and_evidence(agent, answered, number):
    done = answered(text(json.dumps({"Id": number}), structuredContent={"Id": number}))
    assert (done.status, done.output) == ("Success", {"Id": number})
    assert json.loads(done.observation) == {"Id": number}
    shown = factories.api(agent).get(f"/executions/{done.pk}").content.decode()
    assert f'"output":{{"Id":{number}}}' in shown.replace(" ", "")
    record = AuditRecord.objects.get(execution_id=done.pk, code="TOOL.END")
    kept = payloads.open_payload(record.pk)["payload"]["output"]["Id"]
    assert Decimal(str(kept)) == number  # 10^23 is written as 1e+23, which is equal


def test_an_integer_is_exact_where_the_output_is_stored_apart(agent, answered, settings):
    settings.OUTPUT_INLINE_BYTES = 10
    done = answered(text("x", structuredContent={"Id": SNOWFLAKE}))
    assert done.output is None
    place = f"/executions/{done.pk}/output"
    streamed_out = factories.api(agent).get(place).streaming_content
    assert b"".join(streamed_out) == b'{"Id": %d}' % SNOWFLAKE


def test_an_integer_is_exact_in_an_answer_from_the_cache(agent, imported, stub):
    imported(delivery="pure", cache_ttl="PT5M")
    stub.tools["echo"].does = lambda given: text("x", structuredContent={"Id": 2**64 - 1})
    first, second = ask(agent), ask(agent)
    assert (first.cached, second.cached) == (False, True)
    assert second.output == {"Id": 2**64 - 1}
    assert str(2**64 - 1) in second.observation


@pytest.mark.usefixtures("without_workers")
def test_an_integer_is_exact_from_step_to_step_of_a_chain(agent, organization, imported, stub):
    imported(parameters=[])
    stub.tools["echo"].does = lambda given: text("x", structuredContent={"got": given, "Id": 2**63})
    of = {"$step": "one", "path": "/output/Id"}
    steps = [
        {"id": "one", "tool_name": "echo", "parameters": {"n": 1}},
        {"id": "two", "tool_name": "echo", "parameters": {"n": of, "t": {"$text": _TEMPLATE}}},
    ]
    definition = {"name": "both", "type": "chain", "description": "Both.", "parameters": []}
    factories.register(organization, definition | {"implementation": {"chain": {"steps": steps}}})
    begun = answer.execute(
        caller=factories.caller(agent), call=factories.call("both", {}), wait_s=0
    )
    work_off(organization)
    done = Execution.objects.get(pk=begun.pk)
    assert done.error_message == ""
    assert done.output["got"] == {"n": 2**63, "t": f"id {2**63}"}
    assert stub.requests_for("tools/call")[-1]["params"]["arguments"]["n"] == 2**63


def test_warnings_of_an_answer_come_with_it_from_the_cache(agent, imported, stub):
    imported(delivery="pure", cache_ttl="PT5M")
    stub.tools["echo"].does = lambda given: {"content": [part("a"), {"type": "odd"}]}
    other = factories.agent(agent.organization, groups=["default", "nowhere"])
    first = ask(other, a=1, group=["default", "nowhere"])
    second = ask(agent, a=1)
    assert (first.cached, second.cached) == (False, True)
    (received,) = second.warnings
    assert 'of the kind "odd"' in received
    assert received in first.warnings and "nowhere" in str(first.warnings)


def test_warnings_of_an_answer_come_with_it_to_a_call_that_waited_for_it(agent, imported, stub):
    imported(delivery="pure", cache_ttl="PT5M")
    stub.tools["echo"].does = lambda given: {"content": [part("a"), {"type": "odd"}]}
    waiting = [factories.execution(agent, "echo", a=1) for _ in range(2)]
    for one in waiting:
        perform(one.pk)
        until(lambda one=one: ended_execution(one))
    first, second = (Execution.objects.get(pk=one.pk) for one in waiting)
    assert (second.cached_from, second.warnings) == (first.pk, first.warnings)
    assert 'of the kind "odd"' in str(second.warnings)


_TEMPLATE = "id {{ steps.one.output.Id }}"


def test_an_integer_is_exact_where_a_path_selects_and_where_a_call_refers_to_it(
    agent, organization, answered, stub
):
    done = answered(
        text("x", structuredContent={"rows": [{"Id": SNOWFLAKE}]}),
        parameters=[],
        constraints={},
    )
    tool = ToolRow.objects.get(organization=organization, name="echo")
    changed = tool.version.definition | {
        "transform": {"select": "$.rows[*].Id", "observation": "{{ output[0] }}"}
    }
    update_tool(tool=tool, definition=changed, by=factories.actor(organization))
    selected = ask(agent)
    assert (selected.output, selected.observation) == ([SNOWFLAKE], str(SNOWFLAKE))
    ask(agent, n={"$result": str(done.pk), "path": "/output/rows/0/Id"})
    assert stub.requests_for("tools/call")[-1]["params"]["arguments"] == {"n": SNOWFLAKE}


def test_an_integer_in_a_schema_is_exact_in_the_digest(agent, answered, stub):
    def schema(number):
        return {"type": "object", "properties": {"n": {"type": "integer", "maximum": number}}}

    stub.tools["echo"].input_schema = schema(2**64 - 1)
    assert answered(text("ok")).output == "ok"
    stub.tools["echo"].input_schema = schema(2**64)
    assert answered(text("ok")).error_code == "UPSTREAM_CHANGED"


def test_an_integer_without_end_is_refused_in_clear_words(agent, imported, stub):
    imported()
    result = b'{"content":[],"structuredContent":{"n":%s}}' % (b"9" * (MAX_DIGITS + 1))

    def reply(message):
        body = b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (message["id"], result)
        return Reply(200, JSON_KIND, body)

    stub.instead["tools/call"] = reply
    done = ask(agent)
    assert done.error_code == "UPSTREAM_INVALID"
    assert f"more than {MAX_DIGITS} digits" in done.error_message


def test_numbers_and_texts_that_json_does_not_have_lose_no_answer(agent, imported, stub):
    """Python writes NaN; JavaScript splits surrogate pairs; C passes on a NUL."""
    imported()
    result = '{"content":[{"type":"text","text":"a\\ud83d\\u0000"}],"structuredContent":{"m":NaN}}'

    def reply(message):
        body = '{"jsonrpc":"2.0","id":%d,"result":%s}' % (message["id"], result)  # noqa: UP031
        return Reply(200, JSON_KIND, body.encode())

    stub.instead["tools/call"] = reply
    done = ask(agent)
    assert (done.status, done.output) == ("Success", {"m": None})
    assert "a\ufffd\ufffd" in done.observation
    assert "/structuredContent/m is nan" in str(done.warnings)
    assert "/content/0/text contains NUL or half a surrogate pair" in str(done.warnings)


def test_an_answer_that_cannot_be_used_is_stored_whatever_it_contains(agent, imported, stub):
    imported()

    def reply(message):
        result = b'{"a":"\\u0000\\ud800","b":NaN}'
        body = b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (message["id"], result)
        return Reply(200, JSON_KIND, body)

    stub.instead["tools/call"] = reply
    done = ask(agent)
    assert done.error_code == "UPSTREAM_INVALID"
    assert done.error_details["answer"] == {"a": "\ufffd\ufffd", "b": None}


def test_text_and_links_beside_structured_content_reach_the_observation(agent, answered):
    done = answered(
        {"content": [part("the report is ready"), LINK], "structuredContent": {"count": 1}}
    )
    assert done.output == {"count": 1}
    lines = done.observation.split("\n")
    assert lines == ["the report is ready", "[q3: reports://quarterly/2026-q3]", '{"count": 1}']
    assert done.warnings == []


def test_several_texts_beside_structured_content_reach_the_observation(agent, answered):
    content = [part("summary for people"), part("more")]
    done = answered({"content": content, "structuredContent": {"n": 1}})
    assert done.observation == 'summary for people\nmore\n{"n": 1}'


def test_one_text_that_is_the_json_of_the_structure_is_not_said_twice(agent, answered):
    done = answered(text('{ "n": 1 }', structuredContent={"n": 1}))
    assert done.observation == '{"n": 1}'


def test_a_definition_that_redacts_decides_what_of_an_answer_is_read(agent, answered):
    done = answered(
        text("the token is abc", structuredContent={"token": "abc", "n": 1}),
        constraints={},
    )
    assert "abc" in done.observation
    tool = ToolRow.objects.get(organization=agent.organization, name="echo")
    changed = tool.version.definition | {"transform": {"redact": ["$.token"]}}
    update_tool(tool=tool, definition=changed, by=factories.actor(agent.organization))
    done = ask(agent)
    assert "abc" not in f"{done.observation}{done.output}"


def test_what_stands_beside_a_structure_is_redacted_on_pages_as_the_structure_is(agent, answered):
    done = answered(text("ready", structuredContent={"password": "hunter2", "n": 1}))
    assert "hunter2" in done.observation
    shown = redact_execution(Execution.objects.select_related("tool_version").get(pk=done.pk))
    assert shown["observation"].startswith("ready\n{")
    assert "hunter2" not in str(shown)


def test_an_image_is_a_reference_in_the_observation_and_whole_in_the_output(agent, answered):
    done = answered({"content": [part("a plot"), PNG]})
    assert done.output == [part("a plot"), PNG]
    where = f"GET /api/v1/executions/{done.pk}/output"
    assert done.observation == f"a plot\n[image/png, 30 kB; {where} has it]"


@pytest.mark.parametrize(
    "content",
    [
        {"type": "audio", "mimeType": "audio/wav", "data": PNG["data"]},
        {"type": "resource", "resource": {"uri": "file:///a.pdf", "blob": PNG["data"]}},
        {"type": "image", "mime_type": "image/png", "data": PNG["data"]},
    ],
    ids=["audio", "blob", "python-name"],
)
def test_bytes_of_every_kind_are_a_reference_in_the_observation(agent, answered, content):
    done = answered({"content": [content]})
    assert PNG["data"] in json.dumps(done.output)
    assert PNG["data"][:200] not in done.observation
    assert "30 kB" in done.observation


def test_an_image_beside_structured_content_is_in_the_output_with_it(agent, answered):
    done = answered({"content": [part("a plot"), PNG], "structuredContent": {"n": 1}})
    assert done.output == {"n": 1, "_content": [PNG]}
    assert PNG["data"][:200] not in done.observation
    assert done.observation.endswith('has it]\n{"n": 1}')


def test_a_schema_without_room_for_an_image_is_kept_to_and_that_is_said(agent, answered, stub):
    stub.tools["echo"].more = {"outputSchema": PROMISED | {"additionalProperties": False}}
    done = answered({"content": [PNG], "structuredContent": {"n": 1}})
    assert (done.status, done.output) == ("Success", {"n": 1})
    assert "not in the output" in str(done.warnings)


def test_a_part_of_a_kind_that_is_not_known_loses_nothing_of_the_others(agent, answered):
    done = answered({"content": [part("useful text"), {"type": "tool_reference", "tool": "x"}]})
    assert (done.status, done.output) == ("Success", "useful text")
    assert '"tool_reference"' in done.warnings[0] and '"tool": "x"' in done.warnings[0]
    assert done.observation.startswith("useful text\n[tool_reference: ")


def test_parts_of_which_none_is_known_are_the_output_as_they_came(agent, answered):
    parts = [{"type": "video", "url": "https://v.example/1"}]
    done = answered({"content": parts})
    assert (done.status, done.output) == ("Success", parts)


@pytest.mark.parametrize(
    ("old", "output"),
    [
        ({"content": [part("old shape")]}, "old shape"),
        ("old shape", "old shape"),
        ({"rows": [1, 2]}, {"rows": [1, 2]}),
        ([part("a"), part("b")], "a\nb"),
    ],
    ids=["result", "text", "value", "parts"],
)
def test_a_result_in_the_form_of_2024_is_read(agent, answered, old, output):
    done = answered({"toolResult": old})
    assert (done.status, done.output) == ("Success", output)
    assert "2024" in done.warnings[0]


def test_a_failure_in_the_form_of_2024_is_a_failure(agent, answered):
    done = answered({"toolResult": {"content": [part("no such city")], "isError": True}})
    assert (done.error_code, done.error_message) == ("TOOL_ERROR", "no such city")


def test_a_result_without_any_content_is_no_success_and_is_shown(agent, answered):
    done = answered({"rows": [1]})
    assert done.error_code == "UPSTREAM_INVALID"
    assert "neither content nor structuredContent" in done.error_message
    assert done.error_details["answer"]["rows"] == [1]
    assert done.error_details["effect_possible"] is True


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (None, ""),
        ({}, ""),
        ({"type": "text", "text": "alone"}, "alone"),
        (["plain"], "plain"),
        ([{"text": "no type"}], "no type"),
        ([{"type": "text", "text": {"a": 1}}], '{"a": 1}'),
    ],
    ids=["null-of-go", "php-list", "one-part", "a-text", "no-type", "json-as-text"],
)
def test_content_that_is_not_written_as_it_should_be_is_read(agent, answered, content, output):
    done = answered({"content": content})
    assert (done.status, done.output) == ("Success", output)
    assert len(done.warnings) == 1 and "/content" in done.warnings[0]


def test_a_content_that_is_a_text_is_refused_with_what_came(agent, answered):
    done = answered({"content": "Hello, World!"})
    assert done.error_code == "UPSTREAM_INVALID"
    assert done.error_details["answer"]["content"] == "Hello, World!"


def test_a_text_of_json_where_structured_content_was_promised_is_the_output(agent, answered, stub):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    done = answered(text('{"n": 5}'))
    assert (done.status, done.output) == ("Success", {"n": 5})
    assert "gave no structured content" in str(done.warnings)


def test_a_text_of_json_that_escapes_what_cannot_be_stored_is_the_output(agent, answered, stub):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    done = answered(text('{"n": 5, "a": "\\u0000", "b": NaN}'))
    assert (done.status, done.output) == ("Success", {"n": 5, "a": "\ufffd", "b": None})


@pytest.mark.parametrize("words", ["five", '{"n": "five"}'])
def test_another_text_where_structure_was_promised_is_refused_and_kept(
    agent, answered, stub, words
):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    done = answered(text(words))
    assert (done.error_code, done.output) == ("UPSTREAM_INVALID", None)
    assert "gave no structured content, though its tool promises some" in done.error_message
    assert done.error_details == {"answer": words, "effect_possible": True}


MAPS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object"}},
                   "by~name": {"type": "object"}, "list": {"type": "array"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "output"),
    [
        ([], {}),
        ({"by~name": [], "list": []}, {"by~name": {}, "list": []}),
        ({"rows": [{"a": 1}, []]}, {"rows": [{"a": 1}, {}]}),
        ('{"list": [1]}', {"list": [1]}),
    ],
    ids=["whole", "member", "item", "json-as-text"],
)
def test_structured_content_is_read_as_its_schema_has_it(agent, answered, stub, sent, output):
    stub.tools["echo"].more = {"outputSchema": MAPS}
    done = answered({"content": [], "structuredContent": sent})
    assert (done.status, done.output) == ("Success", output)
    assert "which is read as" in str(done.warnings)


@pytest.mark.parametrize("sent", [{"by~name": [1]}, [1], "text", {"list": {}}])
def test_structured_content_that_is_something_else_is_refused(agent, answered, stub, sent):
    stub.tools["echo"].more = {"outputSchema": MAPS}
    done = answered({"content": [], "structuredContent": sent})
    assert done.error_code == "OUTPUT_INVALID"


def test_an_import_without_the_output_schema_gives_the_text(agent, answered, stub):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    done = answered(text("five"), output_schema={})
    assert (done.status, done.output) == ("Success", "five")


def test_a_structure_that_its_schema_does_not_allow_is_refused_with_place_and_answer(
    agent, answered, stub
):
    stub.tools["echo"].more = {"outputSchema": PROMISED}
    done = answered(text("x", structuredContent={"n": None}))
    assert (done.error_code, done.output) == ("OUTPUT_INVALID", None)
    assert done.error_details["places"] == ["/n"]
    assert json.loads(done.error_details["answer"]) == {"n": None}
