"""A POST that is sent twice with one `Idempotency-Key` is executed once."""

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from audit.events import Event
from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools.api.test_approvals import Browser, decision_body
from tests.tools.api.test_authorization_matrix import ADDRESSES
from tests.tools.approval_requests import approver
from tests.tools.shapes import check_error
from tools.accounts import idempotency
from tools.api.common import idempotency as hook
from tools.api.common.idempotency import KeyedView, Keying
from tools.catalog.registry import registry
from tools.models import (
    Agent,
    IdempotencyKey,
    Message,
    MessageChannel,
    SigningKey,
    Token,
    ToolGroup,
)
from tools.worker.tasks import forget_idempotency_keys

KEY = {"Idempotency-Key": "one-key"}
REPLAYED = "Idempotent-Replayed"
# Bounce reports of providers, who have no account: signed, and a duplicate changes nothing.
NO_CALLER = {"api-channel-bounces"}
READING = {
    "api-what-if", "api-lint", "api-chain-proposals", "api-chain-rehearse", "api-tier-preview",
    "api-tier-terms-preview",
}  # fmt: skip


def doings() -> list[tuple[str, Any, Any]]:
    """Path, body, another body."""
    definition = factories.definition("twice")
    server = {"name": "up", "transport": "streamable-http", "url": "https://up.example/mcp"}
    channel = {"name": "hook", "kind": "webhook", "url": "https://hook.example/in"}
    return [
        ("/groups", {"name": "twice"}, {"name": "other"}),
        ("/agents", {"slug": "twice"}, {"slug": "other"}),
        ("/agents/bee/tokens", {"label": "a"}, {"label": "b"}),
        ("/agents/bee/suspend", {"reason": "a"}, {"reason": "b"}),
        ("/grants", {"agent": "bee", "groups": ["write"]}, {"agent": "bee", "groups": ["compute"]}),
        ("/tools", definition, definition | {"description": "Another."}),
        ("/tools/import", {"items": [definition]}, {"items": [definition], "dry_run": True}),
        ("/sessions", {}, {"state": "analysis"}),
        ("/channels", channel, channel | {"name": "other"}),
        ("/signing-keys", None, {}),
        ("/mcp-servers", server, server | {"name": "other"}),
        ("/sandbox-profiles", {"name": "twice"}, {"name": "other"}),
        ("/cache/invalidate", {}, {"tool": "echo"}),
        ("/confirmation-rules", {"name": "a", "tool": "echo"}, {"name": "b", "tool": "echo"}),
        ("/audit/erasures", {"agent": "bee", "reason": "a"}, {"agent": "bee", "reason": "b"}),
    ]


DOINGS = doings()


@pytest.fixture
def bee(organization) -> Agent:
    return factories.agent(organization, "bee")


@pytest.fixture
def echo(organization):
    return factories.tool(organization)


def deeds(organization) -> int:
    """How many audit records there are."""
    found = AuditRecord.objects.filter(organization=organization.slug)
    return found.exclude(code=Event.SECRET_REPEAT).count()


def rows(organization):
    return IdempotencyKey.objects.filter(organization=organization)


def test_every_post_takes_the_key_or_only_reads():
    found = {}
    for name, pattern in ADDRESSES.items():
        view = getattr(pattern.callback, "cls", None)
        if hasattr(view, "post"):
            found[name] = view.keying if issubclass(view, KeyedView) else None
    assert {name for name, keying in found.items() if keying is None} == NO_CALLER
    assert {name for name, keying in found.items() if keying == Keying.IGNORED} == READING


@pytest.mark.parametrize(("path", "body", "other"), DOINGS, ids=[path for path, _, _ in DOINGS])
def test_what_is_asked_twice_is_done_once(admin_api, organization, bee, echo, path, body, other):
    first = admin_api.post(path, body, **KEY)
    assert 200 <= first.status_code < 300, first.content
    done = deeds(organization)

    again = admin_api.post(path, body, **KEY)

    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers.get("Location") == first.headers.get("Location")
    assert again[REPLAYED] == "true" and REPLAYED not in first
    assert deeds(organization) == done
    if other != {} or body is not None:
        check_error(admin_api.post(path, other, **KEY), 422, "idempotency_key_reused")
    assert rows(organization).count() == 1


def test_another_key_does_it_again(admin_api, organization):
    before = SigningKey.objects.filter(organization=organization).count()
    for key in "abb":
        assert admin_api.post("/signing-keys", **{"Idempotency-Key": key}).status_code == 201
    assert SigningKey.objects.filter(organization=organization).count() == before + 2


def test_without_a_key_nothing_is_kept(admin_api, organization):
    answer = admin_api.post("/groups", {"name": "plain"})
    assert answer.status_code == 201 and REPLAYED not in answer
    assert not rows(organization).exists()


def test_one_key_at_two_addresses_is_two_requests(admin_api):
    assert admin_api.post("/groups", {"name": "both"}, **KEY).status_code == 201
    assert admin_api.post("/agents", {"slug": "both"}, **KEY).status_code == 201


def test_the_spelling_of_a_body_does_not_matter(admin_api, organization):
    first = admin_api.post("/groups", {"name": "both", "description": "x"}, **KEY)
    again = admin_api.post("/groups", {"description": "x", "name": "both"}, **KEY)
    assert again[REPLAYED] == "true" and again.content == first.content


@pytest.mark.parametrize("key", ["", "a" * 256, "with space", "ümlaut", "tab\there"])
@pytest.mark.parametrize("path", ["/groups", "/tools/echo/execute", "/tokens"])
def test_a_key_that_is_none_is_refused(admin_api, echo, path, key):
    check_error(admin_api.post(path, {"name": "x"}, **{"Idempotency-Key": key}), 400, "malformed")
    assert not ToolGroup.objects.filter(organization=echo.organization, name="x").exists()


def test_the_longest_key_is_taken(admin_api, api, echo):
    key = {"Idempotency-Key": "~" * 255}
    assert admin_api.post("/groups", {"name": "long"}, **key).status_code == 201
    body = {"parameters": {"text": "x"}, "options": {"wait_s": 0}}
    assert api.post("/tools/echo/execute", body, **key).status_code == 202


def test_a_replayed_call_is_marked(api, echo):
    body = {"parameters": {"text": "x"}, "options": {"wait_s": 0}}
    first, again = (api.post("/tools/echo/execute", body, **KEY) for _ in range(2))
    assert first.json()["execution_id"] == again.json()["execution_id"]
    assert REPLAYED not in first and again[REPLAYED] == "true"


def test_a_conflict_is_kept(admin_api, organization):
    admin_api.post("/agents", {"slug": "taken"})
    first = admin_api.post("/agents", {"slug": "taken"}, **KEY)
    assert first.status_code == 409
    Agent.objects.filter(organization=organization, slug="taken").update(slug="gone")

    again = admin_api.post("/agents", {"slug": "taken"}, **KEY)

    assert again.status_code == 409 and again.content == first.content
    assert again[REPLAYED] == "true"


def test_what_was_not_decided_leaves_the_key_free(admin_api, organization):
    assert admin_api.post("/groups", {"nome": "x"}, **KEY).status_code == 400
    assert admin_api.post("/agents/nobody/tokens", {}, **KEY).status_code == 404
    assert not rows(organization).exists()
    assert admin_api.post("/groups", {"name": "x"}, **KEY).status_code == 201


def test_a_refusal_under_a_key_is_on_record(api, organization):
    refused = api.post("/sessions", {"group": ["secret"]}, **KEY)
    assert refused.status_code == 403
    assert not rows(organization).exists()
    plain = AuditRecord.objects.filter(organization=organization.slug, outcome="denied")
    assert plain.exists()


def test_an_action_that_fails_leaves_neither_row_nor_deed(admin_api, organization, monkeypatch):
    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("the process is gone")

    monkeypatch.setattr(idempotency, "store_response", crash)
    with pytest.raises(RuntimeError), transaction.atomic():
        admin_api.post("/groups", {"name": "half"}, **KEY)
    assert not rows(organization).exists()
    assert not ToolGroup.objects.filter(organization=organization, name="half").exists()
    organization.refresh_from_db()
    assert "half" not in registry.snapshot(organization.pk, organization.revision).groups
    monkeypatch.undo()
    assert admin_api.post("/groups", {"name": "half"}, **KEY).status_code == 201


def test_a_catalog_that_may_yet_be_undone_is_shown_and_not_believed(admin_api, organization):
    before = registry.snapshot(organization.pk, organization.revision).revision
    shown = admin_api.post("/tools", factories.definition("fresh"), **KEY)
    assert shown.status_code == 201 and shown.json()["name"] == "fresh"
    assert registry._snapshots[organization.pk].revision == before


def test_one_key_in_two_organizations_is_two_requests(admin_api, organization):
    other = factories.organization(f"org-{uuid4().hex[:8]}")
    there = {"X-Organization": other.slug}
    for place in ({}, there, {}, there):
        answer = admin_api.post("/groups", {"name": "both"}, **KEY, **place)
        assert answer.status_code == 201
    made = ToolGroup.objects.filter(name="both", organization__in=[organization, other])
    assert made.count() == 2


NOT_AT_ONCE = {"options": {"wait_s": 0}}
CALLS = [
    ("/executions", {"tool_name": "echo", "parameters": {"text": "x"}}),
    ("/batches", {"inputs": [{"tool_name": "echo", "parameters": {"text": "x"}}]}),
    ("/agent/requests", {"question": "Why?"}),
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_every_replayed_call_is_marked(api, echo, path, body):
    first, again = (api.post(path, body | NOT_AT_ONCE, **KEY) for _ in range(2))
    assert first.status_code == again.status_code == 202
    assert first["Location"] == again["Location"]
    assert REPLAYED not in first and again[REPLAYED] == "true"


def test_a_cancellation_is_answered_the_same_when_it_is_sent_twice(api, echo, organization):
    body = {"parameters": {"text": "x"}} | NOT_AT_ONCE
    address = api.post("/tools/echo/execute", body)["Location"].removeprefix("/api/v1")
    first, again = (api.post(f"{address}/cancel", **KEY) for _ in range(2))
    assert first.json() == again.json() and first.json()["status"] == "Cancelled"
    assert REPLAYED not in first and again[REPLAYED] == "true"


def test_a_decision_is_counted_once(organization, confirmation):
    browser = Browser(approver(organization))
    path, word = f"/confirmations/{confirmation.pk}/approve", decision_body(confirmation)
    first, again = (browser("POST", path, word, **KEY) for _ in range(2))
    assert first.status_code == 200 and again.content == first.content
    assert again[REPLAYED] == "true"
    without = browser("POST", path, word)
    assert without.status_code == 409


def test_a_channel_is_tried_once(admin_api, admin_user, organization):
    desk = {"name": "desk", "kind": "inbox", "recipients": [admin_user.username]}
    admin_api.post("/channels", desk)
    body = {"to": [admin_user.username]}
    first, again = (admin_api.post("/channels/desk/test", body, **KEY) for _ in range(2))
    assert first.status_code == 200 and again.json() == first.json()
    assert Message.objects.filter(organization=organization).count() == 1


def test_an_upstream_that_does_not_answer_leaves_the_key_free(
    admin_api, organization, loopback_is_open
):
    server = {"name": "gone", "transport": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
    admin_api.post("/mcp-servers", server)
    assert admin_api.post("/mcp-servers/gone/refresh", {}, **KEY).status_code == 503
    assert not rows(organization).exists()


# --- secrets --------------------------------------------------------------------------------------


def at_rest() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT kept::text FROM tools_idempotencykey AS kept")
        return str(cursor.fetchall())


def in_the_past(organization, **age: float) -> None:
    rows(organization).update(began_at=Now() - timedelta(**age))


SECRETS = [
    ("/agents/bee/tokens", {}, "token"),
    ("/channels", {"name": "h", "kind": "webhook", "url": "https://h.example/"}, "signing_key"),
]


@pytest.mark.parametrize(("path", "body", "member"), SECRETS)
def test_a_secret_is_sealed_and_left_out_after_ten_minutes(
    admin_api, organization, bee, path, body, member
):
    first = admin_api.post(path, body, **KEY).json()
    assert first[member] not in at_rest() and first[member].encode().hex() not in at_rest()
    assert admin_api.post(path, body, **KEY).json() == first
    given_again = AuditRecord.objects.get(organization=organization.slug, code="SECRET.REPEAT")
    assert given_again.subject == f"/api/v1{path}" and given_again.details["members"] == [member]
    assert first[member] not in str(given_again.details)

    in_the_past(organization, minutes=11)
    late = admin_api.post(path, body, **KEY)

    assert late.json() == first | {member: None}
    assert late["Idempotent-Replay-Withheld"] == member and late[REPLAYED] == "true"
    repeats = AuditRecord.objects.filter(organization=organization.slug, code="SECRET.REPEAT")
    assert repeats.count() == 1


def test_a_large_answer_is_not_kept_and_where_it_is_read_is(
    admin_api, organization, bee, monkeypatch
):
    monkeypatch.setattr(hook, "MOST_BYTES", 150)
    for path, body in (
        ("/tools", factories.definition("twice")),
        ("/agents/bee/tokens", {"label": "x" * 90}),
    ):
        first = admin_api.post(path, body, **KEY)
        assert first.status_code == 201 and len(first.content) > 150
        again = admin_api.post(path, body, **KEY)
        assert again.status_code == 201 and again[REPLAYED] == "true"
        assert again["Idempotent-Replay-Withheld"] == "*"
        address = first["Location"]
        assert again["Location"] == address
        secret = {"token": first.json()["token"]} if "token" in first.json() else {}
        assert again.json() == {"withheld": "large", "location": address} | secret
    assert Token.objects.filter(user=bee.service_account).count() == 1
    assert max(len(row.answer) for row in rows(organization)) <= 150


def test_housekeeping_erases_secrets_first_and_rows_after_a_day(admin_api, organization, bee):
    admin_api.post("/agents/bee/tokens", {}, **KEY)
    in_the_past(organization, minutes=11)
    forget_idempotency_keys()
    assert [row.secrets for row in rows(organization)] == [None]
    in_the_past(organization, hours=25)
    forget_idempotency_keys()
    assert not rows(organization).exists()


def test_a_key_is_forgotten_after_a_day_also_before_housekeeping(admin_api, organization, bee):
    first = admin_api.post("/agents/bee/tokens", {"label": "a"}, **KEY).json()
    in_the_past(organization, hours=25)
    again = admin_api.post("/agents/bee/tokens", {"label": "b"}, **KEY)
    assert again.status_code == 201 and again.json()["id"] != first["id"] and REPLAYED not in again


# --- who may see the stored answer ----------------------------------------------------------------


@pytest.mark.parametrize(
    "narrow", [{"scopes": ["manage"]}, {"groups": ["default"]}, {"tools": ["echo"]}]
)
def test_a_narrower_token_of_the_account_does_not_get_the_answer(
    admin_api, admin_user, bee, echo, narrow
):
    wide = admin_api.post("/agents/bee/tokens", {}, **KEY).json()
    narrower = Api(
        factories.token(admin_user, **{"scopes": ["read", "execute", "manage"]} | narrow)
    )
    answer = narrower.post("/agents/bee/tokens", {}, **KEY)
    assert REPLAYED not in answer and wide["token"] not in answer.content.decode()


def test_a_token_that_does_not_manage_is_refused(admin_api, admin_user):
    admin_api.post("/groups", {"name": "x"}, **KEY)
    reading = Api(factories.token(admin_user, scopes=["read", "execute"]))
    check_error(reading.post("/groups", {"name": "x"}, **KEY), 403, "scope_missing")


def test_a_session_does_not_get_the_answer_of_a_token(admin_api, admin_user):
    admin_api.post("/sessions", {}, **KEY)
    answer = Browser(admin_user)("POST", "/sessions", {}, **KEY)
    assert answer.status_code == 201 and REPLAYED not in answer


def test_a_session_that_lost_the_permission_for_evidence_gets_403(organization):
    person = factories.person(organization)
    permission = Permission.objects.get(codename="delete_auditpayload")
    person.user_permissions.add(permission)
    browser, body = Browser(person), {"agent": "x", "reason": "a"}
    first, again = (browser("POST", "/audit/erasures", body, **KEY) for _ in range(2))
    assert first.status_code == 200 and again[REPLAYED] == "true"
    person.user_permissions.remove(permission)
    assert browser("POST", "/audit/erasures", body, **KEY).status_code == 403


def test_another_account_does_not_get_the_answer(admin_api, organization):
    admin_api.post("/sessions", {}, **KEY)
    other = Api(factories.token(factories.superuser(organization), scopes=["execute", "manage"]))
    assert REPLAYED not in other.post("/sessions", {}, **KEY)


def test_who_lost_the_permission_gets_403_and_no_replay(organization):
    person = factories.person(organization, is_staff=True)
    permission = Permission.objects.get(codename="add_toolgroup")
    person.user_permissions.add(permission)
    theirs = Api(factories.token(person, scopes=["read", "manage"]))
    assert theirs.post("/groups", {"name": "x"}, **KEY).status_code == 201
    assert theirs.post("/groups", {"name": "x"}, **KEY)[REPLAYED] == "true"
    person.user_permissions.remove(permission)
    answer = theirs.post("/groups", {"name": "x"}, **KEY)
    check_error(answer, 403, "not_permitted")
    assert REPLAYED not in answer


def test_who_is_no_superuser_any_more_gets_403(admin_api, admin_user, bee):
    admin_api.post("/sessions", {}, **KEY)
    admin_user.is_superuser = False
    admin_user.save(update_fields=["is_superuser"])
    check_error(admin_api.post("/sessions", {}, **KEY), 403, "not_permitted")


def test_who_may_no_longer_issue_such_a_token_does_not_get_it_again(organization, bee):
    person = factories.person(organization, is_staff=True, granted_groups=["default", "write"])
    rights = Permission.objects.filter(codename__in=["add_token", "execute_tool", "view_execution"])
    person.user_permissions.add(*rights)
    theirs = Api(factories.token(person, scopes=["read", "execute", "manage"]))
    first = theirs.post("/agents/bee/tokens", {}, **KEY)
    assert first.status_code == 201, first.content
    bee.service_account.granted_groups = ["default", "compute"]
    bee.service_account.save(update_fields=["granted_groups"])
    again = theirs.post("/agents/bee/tokens", {}, **KEY)
    assert again.status_code == 403 and first.json()["token"] not in again.content.decode()
    repeats = AuditRecord.objects.filter(organization=organization.slug, code="SECRET.REPEAT")
    assert not repeats.exists()


def test_a_revoked_token_gets_nothing(admin_api, admin_user):
    admin_api.post("/groups", {"name": "x"}, **KEY)
    Token.objects.filter(user=admin_user).update(revoked_at=timezone.now())
    assert admin_api.post("/groups", {"name": "x"}, **KEY).status_code == 401


# --- tokens issued for a password -----------------------------------------------------------------


def login(user, **fields: str) -> Any:
    body = {"username": user.username, "password": "correct horse", "label": "cli"} | fields
    return Client().post("/api/v1/tokens", body, content_type="application/json", headers=KEY)


def test_a_token_for_a_password_is_made_once(admin_user, organization):
    first, again = login(admin_user), login(admin_user)
    assert first.status_code == 201 and again.json() == first.json() and again[REPLAYED] == "true"
    assert Token.objects.filter(user=admin_user).count() == 1
    check_error(login(admin_user, label="other"), 422, "idempotency_key_reused")
    assert "correct horse" not in at_rest() and first.json()["token"] not in at_rest()


def test_a_wrong_password_gets_no_replay(admin_user):
    login(admin_user)
    check_error(login(admin_user, password="wrong"), 401, "login_failed")


# --- concurrency ----------------------------------------------------------------------------------


def at_once(number: int, ask: Any) -> list[Any]:
    answers, start = [], threading.Barrier(number)

    def send_request() -> None:
        start.wait()
        answers.append(ask())
        connection.close()

    threads = [threading.Thread(target=send_request) for _ in range(number)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return answers


@pytest.mark.parametrize("path", ["/groups", "/agents", "/agents/bee/tokens"])
def test_of_four_at_the_same_moment_one_acts(committed, organization, admin_user, bee, path):
    token = factories.token(admin_user, scopes=["manage"])
    body = {"/groups": {"name": "race"}, "/agents": {"slug": "race"}}.get(path, {})
    answers = at_once(4, lambda: Api(token).post(path, body, **KEY))
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.content for answer in answers}) == 1
    assert sorted(REPLAYED in answer for answer in answers) == [False, True, True, True]
    assert Token.objects.filter(user=bee.service_account).count() == ("tokens" in path)


def test_who_waits_too_long_for_the_first_is_refused(
    committed, organization, admin_user, monkeypatch
):
    monkeypatch.setattr(idempotency, "WAIT_S", 0.05)
    token = factories.token(admin_user, scopes=["manage"])
    answers: list[Any] = []
    acted = hook._perform_action

    def meanwhile(view: Any, attempt: Any, act: Any) -> Any:
        answers.extend(at_once(1, lambda: Api(token).post("/groups", {"name": "x"}, **KEY)))
        return acted(view, attempt, act)

    monkeypatch.setattr(hook, "_perform_action", meanwhile)
    assert Api(token).post("/groups", {"name": "x"}, **KEY).status_code == 201
    check_error(answers[0], 409, "idempotency_in_progress")
    assert answers[0]["Retry-After"] == "1"


def test_what_commits_first_is_done_once_of_four(committed, organization, admin_user):
    token = factories.token(admin_user, scopes=["manage"])
    body = {"agent": "x", "reason": "a"}
    answers = at_once(4, lambda: Api(token).post("/audit/erasures", body, **KEY))
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert sum(REPLAYED not in a for a in answers if a.status_code == 200) == 1
    assert Api(token).post("/audit/erasures", body, **KEY)[REPLAYED] == "true"
    erased = AuditRecord.objects.filter(organization=organization.slug, code="AUDIT.ERASE")
    assert erased.count() == 2  # started and completed


def in_progress(organization, admin_user, **age: float) -> None:
    """As a process that was killed during the request leaves the row."""
    rows(organization).update(
        status=None, answer="", secrets=None, began_at=Now() - timedelta(**age)
    )


def test_what_asks_others_says_that_it_is_in_progress(admin_api, admin_user, organization):
    body = {"agent": "x", "reason": "a"}
    assert admin_api.post("/audit/erasures", body, **KEY).status_code == 200
    in_progress(organization, admin_user, seconds=1)
    check_error(admin_api.post("/audit/erasures", body, **KEY), 409, "idempotency_in_progress")
    in_progress(organization, admin_user, minutes=6)
    taken_over = admin_api.post("/audit/erasures", body, **KEY)
    assert taken_over.status_code == 200 and REPLAYED not in taken_over
    assert admin_api.post("/audit/erasures", body, **KEY)[REPLAYED] == "true"


def test_who_was_taken_over_changes_nothing_of_the_later_answer(admin_api, organization):
    body = {"agent": "x", "reason": "a"}
    admin_api.post("/audit/erasures", body, **KEY)
    row = rows(organization).get()
    late = idempotency.Attempt(row.pk, uuid4())
    idempotency.store_response(late, status=409, answer={}, headers={}, secret=(), relied_on=())
    idempotency.release_key(late)
    assert rows(organization).get().status == 200


def test_a_refusal_of_what_asks_others_leaves_the_key_free(admin_api, organization):
    assert admin_api.post("/channels/none/test", {}, **KEY).status_code == 404
    assert not rows(organization).exists()


def test_a_channel_key_is_replaced_once(admin_api, organization):
    channel = {"name": "h", "kind": "webhook", "url": "https://h.example/"}
    admin_api.post("/channels", channel)
    first, again = (admin_api.post("/channels/h/key", **KEY) for _ in range(2))
    assert first.json() == again.json() and again[REPLAYED] == "true"
    assert MessageChannel.objects.filter(organization=organization).count() == 1
