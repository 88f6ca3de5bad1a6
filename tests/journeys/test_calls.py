"""Whole journeys: an administrator and an agent against the running product, over real HTTP."""

import json
import threading

import pytest

from audit.models import AuditPayload, AuditRecord
from audit.records import payloads
from tests import factories
from tests.conditions import until
from tests.journeys.client import Http
from tests.tools.shapes import check_error, check_execution
from tools.models import Execution

COUNTS = "import time\ndef main(p):\n    time.sleep(float(p['text']))\n    return {'done': True}"


def test_a_file_is_written_and_read_again(http):
    written = http.execute(
        "write_file", {"path": "notes/a.txt", "content": "Grüße"}, group=["write"]
    )
    read = http.execute("read_file", {"path": "notes/a.txt"}, group=["read-only"])
    assert check_execution(written.json(), "Success")["output"]["bytes_written"] == 7
    assert check_execution(read.json(), "Success")["output"]["content"] == "Grüße"


@pytest.mark.part("walks")
def test_a_tool_is_registered_called_changed_disabled_and_deleted(http, admin):
    assert admin("POST", "/api/v1/tools", factories.definition()).status_code == 201
    assert http.execute("echo", {"text": "1"}).json()["output"] == {"echo": {"text": "1"}}
    changed = {"source": "def main(p):\n    return 'changed'"}
    assert admin("PATCH", "/api/v1/tools/echo", {"implementation": changed}).status_code == 200
    assert http.execute("echo", {"text": "2"}).json()["output"] == "changed"
    admin("POST", "/api/v1/tools/echo/versions/1.0.0/restore")
    assert http.execute("echo", {"text": "3"}).json()["output"] == {"echo": {"text": "3"}}
    admin("POST", "/api/v1/tools/echo/disable")
    check_error(http.execute("echo", {"text": "4"}), 403, "tool_disabled")
    admin("DELETE", "/api/v1/tools/echo")
    check_error(http.execute("echo", {"text": "5"}), 404, "tool_not_found")
    assert admin("POST", "/api/v1/tools", factories.definition()).status_code == 201
    assert http.execute("echo", {"text": "6"}).json()["output"] == {"echo": {"text": "6"}}


def test_a_change_made_elsewhere_is_seen_with_the_next_request(http, organization):
    assert http("GET", "/api/v1/tools").json()["results"] == []
    factories.tool(organization)  # in this process, not in the crib's
    assert [t["name"] for t in http("GET", "/api/v1/tools").json()["results"]] == ["echo"]


def test_an_agent_is_made_used_suspended_and_out(crib, admin):
    made = admin("POST", "/api/v1/agents", {"slug": "reader", "groups": ["read-only"]})
    assert (made.status_code, made.json()["groups"], made.json()["tools"]) == (
        201,
        ["read-only"],
        ["*"],
    )
    token = admin("POST", "/api/v1/agents/reader/tokens", {}).json()["token"]
    reader = Http(crib.url, token)
    assert reader("GET", "/api/v1/tools?group=read-only").status_code == 200
    check_error(reader.execute("write_file", {"path": "a", "content": "b"}, group=["write"]), 403)
    admin("POST", "/api/v1/agents/reader/suspend")
    check_error(reader("GET", "/api/v1/tools?group=read-only"), 401, "agent_suspended")


def test_a_grant_that_was_taken_away_counts_from_the_next_request_on(crib, admin):
    admin(
        "POST",
        "/api/v1/agents",
        {"slug": "a", "groups": ["read-only"], "tools": ["validate_content"]},
    )
    agent = Http(crib.url, admin("POST", "/api/v1/agents/a/tokens", {}).json()["token"])
    call = {"content": "{}", "schema": {}}
    assert (
        agent.execute("validate_content", call, group=["read-only"]).json()["status"] == "Success"
    )
    admin("PATCH", "/api/v1/agents/a", {"tools": []})
    refused = check_error(
        agent.execute("validate_content", call, group=["read-only"]), 403, "tool_not_granted"
    )
    assert Execution.objects.get(pk=refused["execution_id"]).started_at is None


def test_two_users_with_two_groups_in_two_states_see_their_own_tools(crib, committed, organization):
    """Specification S1, 9.3, multi-tenant usage."""
    factories.tool(organization, "reads", group=["read-only"], available_in_states=["undefined"])
    factories.tool(organization, "writes", group=["write"], available_in_states=["analysis"])
    a, b = (
        Http(
            crib.url, factories.token(factories.agent(organization, groups=[group]).service_account)
        )
        for group in ("read-only", "write")
    )
    of_a = a("GET", "/api/v1/tools?group=read-only&state=undefined").json()["results"]
    of_b = b("GET", "/api/v1/tools?group=write&state=analysis").json()["results"]
    assert [t["name"] for t in of_a] == ["read_file", "reads", "validate_content"]
    assert [t["name"] for t in of_b] == ["write_file", "writes"]
    check_error(b("GET", "/api/v1/tools?group=read-only"), 403, "group_not_granted")


@pytest.mark.part("walks")
def test_events_are_followed_live_and_end(http, organization):
    factories.tool(organization, implementation={"source": COUNTS})
    started = http.execute("echo", {"text": "1.5"}, options={"wait_s": 0}).json()
    with http.events(f"/api/v1/executions/{started['execution_id']}/events") as events:
        first = next(events)
        assert first["data"]["event_type"] == first["event"] == "Started"
        assert Execution.objects.get(pk=started["execution_id"]).status == "Running"
        rest = [event["event"] for event in events]
    assert rest == ["Completed"]
    assert first["data"]["execution_id"] == started["execution_id"]


def test_events_are_replayed_from_the_beginning_or_after_a_number(http, organization):
    factories.tool(organization)
    place = (
        f"/api/v1/executions/{http.execute('echo', {'text': 'x'}).json()['execution_id']}/events"
    )
    with http.events(place) as events:
        whole = list(events)
    with http.events(place, **{"Last-Event-ID": "1"}) as events:
        after = list(events)
    assert [event["id"] for event in whole] == ["1", "2"]
    assert [event["event"] for event in whole] == ["Started", "Completed"]
    assert after == whole[1:]


@pytest.mark.part("walks")
@pytest.mark.parametrize("number", ["99", "x", "-1", "1e9", "9" * 50])
def test_an_odd_last_event_id_is_no_fault(http, organization, number):
    factories.tool(organization)
    place = (
        f"/api/v1/executions/{http.execute('echo', {'text': 'x'}).json()['execution_id']}/events"
    )
    with http.events(place, **{"Last-Event-ID": number}) as events:
        assert len(list(events)) == (0 if number == "99" else 2)


@pytest.mark.part("faults")
def test_a_reader_who_leaves_gives_the_stream_back(http, organization):
    factories.tool(organization, implementation={"source": COUNTS})
    started = http.execute("echo", {"text": "4"}, options={"wait_s": 0}).json()["execution_id"]
    for _ in range(70):
        with http.events(f"/api/v1/executions/{started}/events"):
            pass
    done = until(
        lambda: (r := http("GET", f"/api/v1/executions/{started}")).status_code == 200 and r
    )
    assert done.json()["status"] == "Success"


@pytest.mark.part("walks")
def test_many_calls_at_once_all_end_and_are_all_on_record(crib, http, organization):
    factories.tool(organization)
    answers = []

    def call(number):
        answers.append(http.execute("echo", {"text": str(number)}).json())

    threads = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert {answer["status"] for answer in answers} == {"Success"}
    assert {answer["output"]["echo"]["text"] for answer in answers} == {str(n) for n in range(24)}
    records = AuditRecord.objects.filter(organization=organization.slug)
    assert (
        records.filter(code="TOOL.START").count() == records.filter(code="TOOL.END").count() == 24
    )


@pytest.mark.part("walks")
def test_secrets_reach_neither_evidence_nor_logs(crib, http, admin, organization, admin_user):
    factories.tool(organization, parameters=[
        {"name": name, "type": "String", "description": "d"} for name in ("text", "api_key",
        "password")
    ])  # fmt: skip
    canaries = {"api_key": "c4nary-key-9137", "password": "c4nary-word-9137"}
    http.execute("echo", canaries)
    http.execute("echo", {**canaries, "unknown": 1})
    http.execute("echo", canaries, group=["admin"])
    http.execute("ghost", canaries)
    http(
        "POST",
        f"/api/v1/tools/echo/execute?token={canaries['api_key']}",
        json.dumps(canaries)[:-1].encode(),
    )
    login = {"username": admin_user.username, "password": canaries["password"]}
    Http(crib.url)("POST", "/api/v1/tokens", login)
    token = admin("POST", "/api/v1/agents", {"slug": "s"}) and admin(
        "POST", "/api/v1/agents/s/tokens", {}
    )
    secrets = [*canaries.values(), token.json()["token"], "correct horse"]
    found = AuditRecord.objects.filter(organization=organization.slug)
    kept = AuditPayload.objects.filter(organization=organization.slug)
    inside = [payloads.open_payload(payload.pk) for payload in kept]
    records = str([list(found.values()), inside])
    assert "[redacted" in str(inside)
    assert not [secret for secret in secrets if secret in records]
    for log in (crib.data / "log").iterdir():
        text = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in text], log


def test_a_request_keeps_its_name_through_every_layer(http, organization):
    factories.tool(organization)
    body = {"parameters": {"text": "x"}}
    answer = http("POST", "/api/v1/tools/echo/execute", body)
    records = AuditRecord.objects.filter(execution_id=answer.json()["execution_id"])
    assert [record.request_id for record in records] == [answer.headers["X-Request-Id"]] * 3


def test_a_body_of_13_megabytes_is_refused(http, organization):
    factories.tool(organization)
    length = {"Content-Length": str(13 * 1024 * 1024)}
    answer = http("POST", "/api/v1/tools/echo/execute", b"{}", **length)
    check_error(answer, 413, "too_large")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_probes_answer_without_a_caller(crib, path):
    answer = Http(crib.url)("GET", path)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_the_metrics_of_the_specification_are_there_to_the_letter(crib, http):
    http("GET", "/api/v1/tools?group=read-only")
    http("GET", "/api/v1/tools?group=never-made")
    text = Http(crib.url)("GET", "/metrics").content.decode()
    for name in (
        "agent_tool_group_requests_total", "agent_tool_group_availability",
        "agent_filtered_tools_count",
        "agent_state_availability", "agent_group_access_denied_total",
        "agent_privilege_escalation_attempts_total",
    ):  # fmt: skip
        assert f"\n{name}" in text, name
    assert "never-made" not in text
