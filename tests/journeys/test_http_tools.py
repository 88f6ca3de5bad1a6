"""HTTP tools over the API: the pipeline, the sandbox, the broker, and servers that may lie."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.journeys.client import Http
from tests.stubs.web import Held, Raw, Reply, Seen, Web, endless, serving
from tests.tools.shapes import check_error, check_execution

JSON = [("Content-Type", "application/json")]
SECRET = "Bearer s3cret/token+of&100%"
ID = {"name": "id", "type": "String", "description": "Which.", "required": True}
MORE = {"name": "more", "type": "Object", "description": "What."}

type Calls = Callable[..., dict[str, Any]]


@pytest.fixture
def allow(admin: Http, organization: Any, web: Web) -> Callable[..., None]:
    """Allow the stub, and what else is given; a credential is made where one is named."""

    def allowing(*more: Any, **narrowed: Any) -> None:
        if name := narrowed.get("credential"):
            made = {"name": name, "header": "Authorization", "value": SECRET}
            assert admin("POST", "/api/v1/egress-credentials", made).status_code == 201
        hosts = [{"host": "127.0.0.1", "ports": [web.port], **narrowed}, *more]
        place = f"/api/v1/organizations/{organization.slug}"
        answer = admin("PATCH", place, {"allowed_hosts": hosts})
        assert answer.status_code == 200, answer.content

    return allowing


@pytest.fixture
def call(crib: Any, committed: None, organization: Any, web: Web) -> Calls:
    """Register a tool and call it once."""
    made = factories.agent(organization, groups=["default"])
    http = Http(crib.url, factories.token(made.service_account))
    count = iter(range(100))

    def calling(arguments: dict[str, Any], **fields: Any) -> dict[str, Any]:
        implementation = {
            "method": fields.pop("method", "GET"),
            "url": web.url(fields.pop("path", "/users/{id}"), host=fields.pop("host", "")),
            **fields.pop("implementation", {}),
        }
        name = f"call-{next(count)}"
        factories.tool(
            organization, name, type="http", implementation=implementation,
            **{"parameters": [ID, MORE], **fields},
        )  # fmt: skip
        answer = http.execute(name, arguments)
        assert answer.status_code == 200, answer.content
        return answer.json()

    return calling


def failed(done: dict[str, Any], code: str) -> str:
    assert check_execution(done, "Failed")["error_code"] == code, done
    return done["error_message"]


def test_a_call_is_the_request_its_definition_says(allow, call, web):
    allow()
    body = b'{"ok": [1, 2.5, null, "\xc3\xbc", 1917043659912705296]}'
    web.replies["/users/a%2Fb"] = Reply(201, JSON, body)
    done = call(
        {"id": "a/b", "more": {"x": [1]}},
        method="POST",
        implementation={
            "query": {"q": "{id}"}, "headers": {"X-Id": "{id}"}, "body": {"m": "{more}"}
        },
    )  # fmt: skip
    output = {"status": 201, "body": {"ok": [1, 2.5, None, "ü", 1917043659912705296]}}
    assert check_execution(done, "Success")["output"] == output
    (seen,) = web.seen
    assert (seen.method, seen.target) == ("POST", "/users/a%2Fb?q=a%2Fb")
    assert json.loads(seen.body) == {"m": {"x": [1]}}
    assert seen.headers["x-id"] == "a/b"
    assert seen.headers["content-type"] == "application/json"
    assert done["metadata"]["execution_metrics"]["network_requests"] == 1


@pytest.mark.part("walks")
def test_an_answer_is_json_text_or_base64(allow, call, web):
    allow()
    web.replies["/users/text"] = Reply(
        headers=[("Content-Type", "text/plain; charset=latin1")], body=b"\xfcber\0\x1b"
    )
    web.replies["/users/bytes"] = Reply(headers=[("Content-Type", "image/png")], body=b"\x89\0\xff")
    web.replies["/users/none"] = Reply(204)
    web.replies["/users/wrong"] = Reply(
        headers=[("Content-Type", "text/plain; charset=zip")], body="ü".encode()
    )
    assert call({"id": "text"})["output"]["body"] == "über\ufffd"
    assert call({"id": "bytes"})["output"] == {
        "status": 200, "body": "iQD/", "encoding": "base64", "content_type": "image/png"
    }  # fmt: skip
    assert call({"id": "none"})["output"] == {"status": 204, "body": None}
    assert call({"id": "wrong"})["output"]["body"] == "ü"


@pytest.mark.part("walks")
def test_select_takes_what_is_wanted(allow, call, web):
    allow()
    web.replies["/users/1"] = Reply(headers=JSON, body=b'{"data": [{"na/me": "x"}], "n": 1}')
    name = {"select": "/data/0/na~1me"}
    assert call({"id": "1"}, implementation=name)["output"] == "x"
    several = {"select": {"n": "/n", "none": "/data/1/x"}}
    assert call({"id": "1"}, implementation=several)["output"] == {"n": 1, "none": None}
    assert call({"id": "1"}, implementation={"select": ["/n", ""]})["output"][0] == 1
    assert "/n/x" in failed(call({"id": "1"}, implementation={"select": "/n/x"}), "SELECT_MISSING")


ODD_JSON = {
    "no JSON": b"<html>",
    "a key twice": b'{"a": 1, "a": 2}',
    "NaN": b"[NaN]",
    "an integer of 301 digits": b"[" + b"9" * 301 + b"]",
    "too deep": b"[" * 1000 + b"]" * 1000,
    "NUL": b'["\\u0000"]',
    "half a pair": b'["\\ud800"]',
    "not UTF-8": b'["\xfc"]',
}


@pytest.mark.part("walks")
@pytest.mark.parametrize("body", ODD_JSON.values(), ids=ODD_JSON)
def test_json_that_is_none_is_an_error_with_the_status(allow, call, web, body):
    allow()
    web.replies["/users/1"] = Reply(headers=JSON, body=body)
    assert "status 200" in failed(call({"id": "1"}), "RESPONSE_NOT_JSON")


@pytest.mark.part("walks")
def test_an_error_of_the_server_is_a_failure_with_an_excerpt(allow, call, web):
    allow()
    web.replies["/users/1"] = Reply(404, JSON, b'{"error": "no such \\u0075ser"}' + b" " * 9000)
    failure = failed(call({"id": "1"}), "UPSTREAM_STATUS")
    assert failure == 'The server answered with status 404. {"error": "no such user"}'
    web.replies["/users/2"] = Reply(429, [("Retry-After", "17")], b"x" * 9000)
    failure = failed(call({"id": "2"}), "UPSTREAM_STATUS")
    assert "status 429" in failure and "17" in failure and len(failure) < 700


@pytest.mark.part("walks")
def test_a_host_that_is_not_allowed_is_not_reached(call, allow, web):
    failed(call({"id": "1"}), "HOST_NOT_ALLOWED")
    allow()
    done = call({"id": "1"}, host="localhost")
    failed(done, "HOST_NOT_ALLOWED")
    assert web.connections == 0
    found = AuditRecord.objects.filter(execution_id=done["execution_id"], code="TOOL.END")
    assert "HOST_NOT_ALLOWED" in str(list(found.values()))


@pytest.mark.part("walks")
@pytest.mark.parametrize(
    ("narrowed", "code"),
    [
        ({"ports": [1]}, "PORT_NOT_ALLOWED"),
        ({"methods": ["POST"]}, "METHOD_NOT_ALLOWED"),
        ({"paths": ["/admin"]}, "PATH_NOT_ALLOWED"),
    ],
)
def test_what_the_list_of_hosts_narrows_stays_narrow(allow, call, web, narrowed, code):
    allow(**narrowed)
    failed(call({"id": "1"}), code)
    assert web.connections == 0


@pytest.mark.parametrize("host", ["[::1]", "169.254.169.254", "10.0.0.1", "127.0.0.2"])
def test_an_address_of_a_private_network_is_refused_though_a_list_names_it(allow, call, web, host):
    allow({"host": host.strip("[]"), "ports": [web.port]})
    failed(call({"id": "1"}, host=host), "ADDRESS_NOT_ALLOWED")
    assert web.connections == 0


@pytest.mark.part("walks")
def test_a_name_of_a_private_address_is_refused(allow, call, web):
    """The loopback address that is opened is 127.0.0.1; ::1 is as well what localhost is."""
    allow({"host": "ip6-localhost", "ports": [web.port]})
    done = call({"id": "1"}, host="ip6-localhost")
    assert done["error_code"] in {"ADDRESS_NOT_ALLOWED", "NAME_NOT_RESOLVED"}
    assert web.connections == 0


@pytest.mark.part("walks")
@pytest.mark.parametrize("value", ["..", "../admin", "", "x\r\n"])
def test_an_argument_that_would_change_the_request_is_refused(allow, call, web, value):
    allow()
    assert "argument id" in failed(call({"id": value}), "REQUEST_INVALID")
    assert web.connections == 0


@pytest.mark.part("walks")
def test_a_redirect_is_followed_on_the_same_host_only(allow, call, web):
    allow({"host": "localhost", "ports": [web.port]})
    web.replies["/users/1"] = Reply(302, [("Location", "/here")])
    web.replies["/here"] = Reply(headers=JSON, body=b"1")
    assert call({"id": "1"})["output"]["body"] == 1
    web.replies["/here"] = Reply(302, [("Location", web.url("/x?token=c4nary", host="localhost"))])
    failure = failed(call({"id": "1"}), "HOST_NOT_ALLOWED")
    assert "redirected" in failure and "c4nary" not in failure
    web.replies["/users/1"] = Reply(307, [("Location", "/here")])
    failure = failed(
        call({"id": "1"}, method="POST", implementation={"body": 1}), "UPSTREAM_STATUS"
    )
    assert "307" in failure
    assert [one.target for one in web.seen].count("/x") == 0


def echo(seen: Seen) -> Reply:
    """All that a host could do with a request: in headers, JSON, keys, and other forms."""
    value = seen.headers["authorization"]
    coded = base64.b64encode(f"you sent {value}!".encode()).decode()
    body = {value: [value, value.removeprefix("Bearer "), coded, {"deep": f"<{value}>"}]}
    return Reply(int(seen.target[-3:]), [*JSON, ("X-Echo", value)], json.dumps(body).encode())


@pytest.mark.parametrize("status", [200, 400])
def test_a_credential_is_added_outside_and_never_comes_back(allow, call, web, status):
    allow(credential="key")
    web.replies[f"/users/{status}"] = echo
    done = call({"id": str(status)}, implementation={"credential": "key"})
    assert web.seen[0].headers["authorization"] == SECRET
    text = json.dumps(done)
    assert "[credential]" in text
    assert "s3cret" not in text and base64.b64encode(b"s3cret/token")[2:-3].decode() not in text
    found = AuditRecord.objects.filter(execution_id=done["execution_id"])
    assert "s3cret" not in str(list(found.values()))


@pytest.mark.part("walks")
def test_a_credential_is_for_the_hosts_that_name_it(allow, call, web):
    allow(credential="key")
    allow_without = {"host": "127.0.0.1", "ports": [web.port]}
    failed(
        call({"id": "1"}, host="localhost", implementation={"credential": "key"}),
        "HOST_NOT_ALLOWED",
    )
    allow(allow_without)
    failure = failed(
        call({"id": "1"}, implementation={"credential": "key"}), "CREDENTIAL_NOT_BOUND"
    )
    assert "key" in failure and web.connections == 0


@pytest.mark.part("walks")
def test_a_definition_names_only_credentials_that_are_there(admin, organization, web):
    wanted = factories.definition(
        "call", type="http", parameters=[ID],
        implementation={"method": "GET", "url": web.url("/{id}"), "credential": "none"},
    )  # fmt: skip
    error = check_error(admin("POST", "/api/v1/tools", wanted), 400, "invalid_definition")
    assert error["details"]["errors"][0]["field"] == "implementation.credential"


@pytest.mark.part("walks")
def test_a_credential_a_tool_names_is_not_deleted(allow, admin, call, web):
    allow(credential="key")
    call({"id": "1"}, implementation={"credential": "key"})
    allow()
    answer = admin("DELETE", "/api/v1/egress-credentials/key")
    assert check_error(answer, 409, "has_dependants")["details"]["dependants"] == ["tool/call-0"]


@pytest.mark.part("walks")
def test_an_endless_answer_ends(allow, call, web):
    allow()
    web.replies["/users/1"] = endless()
    limits = {"max_output_size": 200_000}
    assert "status 200" in failed(call({"id": "1"}, constraints=limits), "TOO_LARGE")


HOSTILE = {
    "huge headers": Raw([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5_000_000]),
    "no HTTP": Raw([b"SSH-2.0-hello\r\n\r\n"]),
    "nothing": Raw([b""]),
    "two lengths": Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"]),
}


@pytest.mark.part("walks", but_each=4)
@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("delivery", "code"), [("pure", "RESPONSE_INVALID"), ("external", "OUTCOME_UNKNOWN")]
)
def test_no_answer_to_what_was_sent_may_be_an_effect(allow, call, web, reply, delivery, code):
    allow()
    web.replies["/users/1"] = reply
    done = call({"id": "1"}, delivery=delivery)
    assert (done["status"], done["error_code"]) == ("Failed", code)
    assert len(web.seen) == 1


@pytest.mark.part("walks")
def test_what_may_be_repeated_is_asked_again(allow, call, web):
    allow()
    replies = iter([Raw([b""]), Reply(headers=JSON, body=b"1")])
    web.replies["/users/1"] = lambda seen: next(replies)
    done = call({"id": "1"}, method="PUT", implementation={"body": 1}, delivery="idempotent")
    assert check_execution(done, "Success")["output"]["body"] == 1
    assert [seen.method for seen in web.seen] == ["PUT", "PUT"]


@pytest.mark.part("walks")
def test_an_answer_that_breaks_off_says_what_it_began_with(allow, call, web):
    allow()
    web.replies["/users/1"] = Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
    failure = failed(
        call({"id": "1"}, method="POST", implementation={"body": 1}), "RESPONSE_INVALID"
    )
    assert "status 200" in failure


def test_what_was_never_sent_has_no_effect(allow, call, web):
    with serving() as other:
        closed = other.port
    allow({"host": "localhost", "ports": [closed]}, ports=[closed])
    done = call({"id": "1"}, implementation={"url": f"http://127.0.0.1:{closed}/{{id}}"})
    failed(done, "CONNECT_FAILED")
    assert not done.get("error_details")


@pytest.mark.part("faults")
def test_a_timeout_says_that_the_effect_may_have_happened(allow, call, web):
    allow()
    held = Held(Reply())
    web.replies["/users/1"] = held
    done = call({"id": "1"}, constraints={"max_execution_time": "PT5S"})
    held.let_go()
    assert check_execution(done, "Timeout")["error_details"] == {"effect_possible": True}


@pytest.mark.part("walks")
def test_a_level_without_network_refuses_the_call(crib, organization, agent, allow, web):
    allow()
    implementation = {"method": "GET", "url": web.url("/{id}")}
    factories.tool(
        organization, "apart", type="http", parameters=[ID], implementation=implementation,
        constraints={"required_isolation": "Restricted"},
    )  # fmt: skip
    http = Http(crib.url, factories.token(agent.service_account))
    check_error(http.execute("apart", {"id": "1"}), 403, "network_refused_when_restricted")
    assert web.connections == 0
