"""Hostile JSON and malformed requests: every error has the one shape, and none is a 500."""

import json
from itertools import product
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction
from django.http import HttpResponse
from django.test import Client
from guardian.shortcuts import assign_perm, remove_perm

from audit.models import AuditRecord
from config.middleware import DatabaseErrors
from tests import factories
from tests.api import Api
from tests.tools.definitions.values.test_strict_json import HOSTILE
from tests.tools.shapes import check_error
from tools.accounts.callers import caller_of_user
from tools.accounts.grants.grants import grants
from tools.api.common.errors import exception_response
from tools.catalog.registry import registry
from tools.models import Execution, Organization, ToolGroup, User

MIB = 1024 * 1024


@pytest.fixture
def raw(agent, organization):
    """Posts raw bytes to the execution of a tool."""
    factories.tool(organization)
    headers = {"Authorization": f"Bearer {factories.token(agent.service_account)}"}
    client = Client()

    def post(body, content_type="application/json", path="/api/v1/tools/echo/execute", **more):
        return client.generic(
            "POST", path, body, content_type=content_type, headers={**headers, **more}
        )

    return post


def test_hostile_json_is_400_and_runs_nothing(raw, organization, subtests):
    for name in HOSTILE.keys() - {"empty"}:
        body = HOSTILE[name]
        with subtests.test(name=name):
            check_error(raw(body), 400)
            check_error(raw(b'{"parameters": ' + body + b"}"), 400)
            assert not Execution.objects.filter(organization=organization).exists()


def test_a_body_that_is_no_object_is_400(raw, subtests):
    for body in [b"[]", b'"x"', b"5", b"null", b"true", b"[{}]"]:
        with subtests.test(body=body):
            check_error(raw(body), 400)


def test_a_body_that_is_missing_is_400_and_runs_nothing(raw, organization):
    check_error(raw(b""), 400, "body_needed")
    check_error(raw(b"{}"), 400, "invalid_parameters")
    assert not Execution.objects.filter(organization=organization, status="Success").exists()


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/groups"), ("PUT", "/groups/gx"), ("PATCH", "/agents/AGENT"), ("POST", "/tools"),
     ("POST", "/cache/invalidate"), ("POST", "/executions"), ("PATCH", "/tools/echo")],
)  # fmt: skip
def test_a_change_says_what_it_changes(admin_api, agent, organization, method, path):
    factories.tool(organization)
    ToolGroup.objects.create(organization=organization, name="gx", description="kept")
    answer = getattr(admin_api, method.lower())(path.replace("AGENT", agent.slug))
    check_error(answer, 400, "body_needed")
    assert ToolGroup.objects.get(organization=organization, name="gx").description == "kept"


MANY = 15_000


@pytest.mark.parametrize(
    "body",
    [{"tool_name": "echo", "group": [0] * MANY}, {str(key): 0 for key in range(MANY)},
     {"inputs": [{"tool_name": 5}] * MANY}],
    ids=["items", "keys", "objects"],
)  # fmt: skip
def test_what_is_wrong_a_thousand_times_is_reported_twenty_times(raw, body):
    path = "/api/v1/batches" if "inputs" in body else "/api/v1/executions"
    answer = raw(json.dumps(body).encode(), path=path)
    reported = check_error(answer, 400)["details"]
    assert len(answer.content) < 5_000
    assert len(reported["errors"]) <= 21 and reported["count"] >= 1


def test_of_twenty_wrong_items_each_is_reported_and_of_more_the_count(raw):
    reported = check_error(raw(b'{"group": [1, 2, 3]}'), 400)["details"]
    assert [one["field"] for one in reported["errors"]] == ["group.0", "group.1", "group.2"]
    assert reported["count"] == 3


def test_a_body_without_a_tools_input_has_a_bounded_number_of_values(admin_api):
    flaw = check_error(admin_api.post("/groups", {"name": ["x"] * 20_001}), 400, "malformed")
    assert "more than 20000 values" in flaw["message"]


def test_a_body_in_another_encoding_is_415(raw, organization):
    answer = raw(b'{"parameters": {"text": "x"}}', **{"Content-Encoding": "gzip"})
    check_error(answer, 415, "unsupported_media_type")
    assert answer.headers["Accept-Encoding"] == "identity"
    assert not Execution.objects.filter(organization=organization).exists()


OTHER_TYPES = [
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
    "application/json; charset=utf-16", "application/json; CHARSET=bogus", "application/xml",
    "nonsense", "application/jsonx",
]  # fmt: skip


def test_another_content_type_is_415(raw, subtests):
    for kind in OTHER_TYPES:
        with subtests.test(kind=kind):
            check_error(raw(b'{"parameters": {"text": "x"}}', kind), 415)


@pytest.mark.parametrize(
    "kind", ["application/json; charset=UTF-8", 'application/json; charset="utf-8"']
)
def test_utf_8_may_be_said(raw, kind):
    check_error(raw(b"{}", kind), 400, "invalid_parameters")


def test_a_body_of_13_megabytes_is_413(raw, organization):
    body = json.dumps({"parameters": {"text": "x" * 13 * MIB}}).encode()
    check_error(raw(body), 413, "too_large")
    assert not Execution.objects.filter(organization=organization).exists()


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense"])
def test_what_cannot_be_answered_is_406(raw, accept):
    check_error(raw(b"{}", Accept=accept), 406)


UNKNOWN = [
    "/api/v1/nothing", "/api/v1/", "/api/", "/api/v2/tools", "/api/v1/tools/",
    "/api/v1/executions/not-a-uuid", "/api/v1/tools/a/b/c",
]  # fmt: skip


def test_an_unknown_address_is_a_json_404(db, subtests):
    client = Client()
    for path, method in product(UNKNOWN, ["GET", "POST", "DELETE"]):
        with subtests.test(path=path, method=method):
            check_error(client.generic(method, path), 404)


ABSENT = [
    ("DELETE", "/tools"), ("PUT", "/tools"), ("GET", "/tools/echo/execute"),
    ("POST", "/tools/echo"), ("PATCH", "/executions"), ("TRACE", "/tools"),
    ("BREW", "/tools"),
]  # fmt: skip


def test_a_method_that_is_not_there_is_405(admin_api, subtests):
    for method, path in ABSENT:
        with subtests.test(method=method, path=path):
            check_error(getattr(admin_api, method)(path), 405, "method_not_allowed")


def test_the_request_is_named_in_the_answer(api):
    answer = api.get("/tools/ghost", **{"X-Request-Id": "mine-1"})
    reported = check_error(answer, 404)
    assert UUID(reported["request_id"])
    assert reported["client_request_id"] == answer.headers["X-Client-Request-Id"] == "mine-1"


def test_a_request_id_that_is_no_plain_word_is_not_repeated(api, subtests):
    for name in ["a b", "x" * 65, "ü", "<script>", "a\tb"]:
        with subtests.test(name=name):
            answer = api.get("/tools/ghost", **{"X-Request-Id": name})
            assert "X-Client-Request-Id" not in answer.headers
            assert "client_request_id" not in check_error(answer, 404)


def test_the_clients_request_id_is_on_record_beside_ours(api, agent):
    answer = api.get("/tools?group=admin", **{"X-Request-Id": "another-request"})
    found = AuditRecord.objects.get(code="LIST.DENY", actor=agent.slug)
    assert found.request_id == answer.headers["X-Request-Id"]
    assert found.details["source"]["client_request_id"] == "another-request"


# --- authentication -----------------------------------------------------------------------------


NO_TOKENS = [
    "", "Bearer", "Bearer ", "bearer nonsense", "Basic dXNlcjpwYXNz", "Token x", "Bearer tcr_",
    "Bearer tcr_abcdefgh_" + "x" * 49, "Bearer " + "x" * 9_000, "Bearer \u00fc",
    "Bearer tcr_' OR 1=1 --", "Digest x",
]  # fmt: skip


def test_what_is_no_token_is_401(db, subtests):
    client = Client()
    for header in NO_TOKENS:
        with subtests.test(header=header):
            response = client.get("/api/v1/tools", headers={"Authorization": header})
            check_error(response, 401)
            assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_scheme_may_be_written_small(api):
    headers = {"Authorization": f"bearer {api.token}"}
    assert Client().get("/api/v1/tools", headers=headers).status_code == 200


def test_a_token_in_the_address_opens_nothing(api, subtests):
    for name in ["token", "access_token", "authorization", "api_key", "key"]:
        with subtests.test(name=name):
            check_error(Client().get(f"/api/v1/tools?{name}={api.token}"), 401)


def test_a_token_in_a_cookie_opens_nothing(api):
    client = Client()
    client.cookies["Authorization"] = f"Bearer {api.token}"
    check_error(client.get("/api/v1/tools"), 401)


def test_a_session_reads_without_and_writes_only_with_its_csrf_token(admin_user):
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user, backend="tools.accounts.login.login.PeopleBackend")
    assert client.get("/api/v1/tools").status_code == 200
    check_error(client.post("/api/v1/groups", {"name": "a"}, "application/json"), 403)


def test_a_session_cookie_adds_nothing_to_an_agents_token(api, admin_client):
    headers = {"Authorization": f"Bearer {api.token}"}
    check_error(admin_client.get("/api/v1/agents", headers=headers), 403)


def test_a_bad_token_is_not_saved_by_a_good_session(admin_client):
    check_error(admin_client.get("/api/v1/tools", headers={"Authorization": "Bearer x"}), 401)


def test_an_agents_organization_cannot_be_chosen(api, organization):
    other = factories.organization("chosen")
    factories.tool(other, "theirs")
    listed = api.get("/tools", **{"X-Organization": "chosen"}).json()["results"]
    assert "theirs" not in [tool["name"] for tool in listed]


def test_a_superuser_acts_in_another_organization(admin_api):
    other = factories.organization("acted-in")
    factories.tool(other, "theirs")
    assert admin_api.get("/tools/theirs", **{"X-Organization": "acted-in"}).status_code == 200
    assert admin_api.get("/tools/theirs").status_code == 404


def test_an_organization_that_is_not_there_or_not_granted_is_404(organization, subtests):
    factories.organization("not-granted")
    person = factories.person(organization)
    api = Api(factories.token(person))
    for slug in ["nowhere", "a b", "x" * 500, "../x", "%00"]:
        with subtests.test(slug=slug):
            check_error(api.get("/tools", **{"X-Organization": slug}), 404)
            check_error(api.get("/tools", **{"X-Organization": "not-granted"}), 404)


def test_a_grant_in_one_organization_is_not_remembered_for_another(organization):
    """Revisions of two catalogs are not comparable: a revoked grant must take effect in both."""
    other = factories.organization("remembered")
    tool = factories.tool(other, "theirs")
    person = factories.person(organization)
    assign_perm("tools.act_in_organization", person, other)
    assign_perm("execute_tool", person, tool)
    Organization.objects.filter(pk=organization.pk).update(revision=1_000)
    Api(factories.token(person)).get("/tools")

    def held_there() -> bool:
        other.refresh_from_db()
        there = caller_of_user(User.objects.get(pk=person.pk), organization=other)
        snapshot = registry.snapshot(other.pk, other.revision)
        return grants.find_grants(there, other.revision).cover(snapshot.tools["theirs"], snapshot)

    assert held_there()
    remove_perm("execute_tool", person, tool)
    Organization.objects.next_revision(other.pk)
    assert not held_there()


@pytest.mark.parametrize(
    "path", ["/api/v1/tools", "/api/v1/tools/ghost", "/api/v1/nothing", "/api/v1/agents"]
)
def test_an_answer_is_stored_nowhere_and_says_by_what_it_differs(api, path):
    answer = Client().get(path, headers={"Authorization": f"Bearer {api.token}"})
    assert answer.headers["Cache-Control"] == "no-store"
    varies = {name.strip() for name in answer.headers["Vary"].split(",")}
    assert varies >= {"Accept", "Authorization", "Cookie", "X-Organization"}


@pytest.mark.parametrize(
    "accept", ["application/problem+json", "application/json, application/problem+json"]
)
def test_an_error_is_a_problem_for_who_asks(api, accept):
    for path, status in (("/tools/ghost", 404), ("/tools?page_size=x", 400)):
        answer = api.get(path, Accept=accept)
        reported = answer.json()
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert (answer.status_code, reported["status"]) == (status, status)
        assert reported["detail"] == reported["message"]
        assert reported["type"] == f"urn:toolcrib:error:{reported['code']}" and reported["title"]
        assert reported["instance"] == f"urn:uuid:{reported['request_id']}"
    assert api.get("/tools", Accept=accept).headers["Content-Type"] == "application/json"


def test_the_status_of_a_refused_calls_problem_is_https_own(api):
    """RFC 9457 requires a number there; our own errors have the call's status."""
    refused = {"group": ["no-such"], "parameters": {}}
    assert api.post("/tools/read_file/execute", refused).json()["status"] == "PermissionDenied"
    accept = {"Accept": "application/problem+json"}
    assert api.post("/tools/read_file/execute", refused, **accept).json()["status"] == 403


def test_an_error_outside_a_view_is_a_problem_too(db):
    answer = Client().get("/api/v1/nothing", headers={"Accept": "application/problem+json"})
    assert (answer.json()["status"], answer["Content-Type"]) == (404, "application/problem+json")


@pytest.mark.parametrize("method", ["QUERY", "CALLER", "SCHEMA", "TRACE"])
def test_a_method_that_is_none_of_ours_is_405(admin_api, method):
    """A view has attributes with these names."""
    for path in ("/tools", "/tools/read_file", "/audit/records"):
        answer = getattr(admin_api, method.lower())(path)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert "GET" in answer.headers["Allow"]


TABLE = """CREATE TEMPORARY TABLE one (
    id int PRIMARY KEY, small int CHECK (small < 10), above int REFERENCES one (id)
) ON COMMIT DROP; INSERT INTO one VALUES (1, 1, NULL);"""
CASES = {
    "INSERT INTO one VALUES (1, 1, NULL)": (409, "conflict"),
    "INSERT INTO one VALUES (2, 2, 7)": (409, "conflict"),
    "SELECT 'x'::int": (400, "malformed"),
    "SELECT 10::numeric / 0": (400, "malformed"),
    "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)": (503, "unavailable"),
    **{
        f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$": (503, "unavailable")
        for state in ("40P01", "40001", "55P03", "53300", "53400", "57P01", "57P03", "08006")
    },
    "INSERT INTO one VALUES (2, 20, NULL)": (None, ""),
    "INSERT INTO one (id) VALUES (NULL)": (None, ""),
    "SELECT nothing FROM one": (None, ""),
}


@pytest.mark.parametrize("sql", CASES)
def test_an_error_of_the_database_is_answered_by_whose_fault_it_is(db, sql):
    status, code = CASES[sql]
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        response = exception_response(_raised(cursor, sql), {})
    assert (response and response.status_code) == status
    assert response is None or json.loads(response.content)["code"] == code
    assert status != 503 or response["Retry-After"] == "1"


@pytest.mark.parametrize("sql", CASES)
def test_a_page_says_so_too(db, rf, sql):
    status, _ = CASES[sql]
    page = DatabaseErrors(lambda request: HttpResponse())
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        response = page.process_exception(rf.get("/groups/"), _raised(cursor, sql))
    assert (response and response.status_code) == status
    assert status != 503 or response["Retry-After"] == "1"


def _raised(cursor, sql):
    try:
        with transaction.atomic():
            cursor.execute(sql)
    except DatabaseError as error:
        return error
    raise AssertionError("nothing was raised")
