"""Tokens: their format, what is stored of them, and when they expire."""

import json
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.authenticators import code_of
from tests.savepoints import rolled_back
from tests.tools.shapes import check_error
from tests.ui.second_factors import with_app
from tools.accounts import bearer_tokens
from tools.accounts.login import lockout
from tools.models import Token

SCOPED = [
    # scopes, method, path, whether the scope permits it
    (["read"], "get", "/tools", True),
    (["read"], "post", "/tools/echo/execute", False),
    (["execute"], "get", "/tools", False),
    (["execute"], "post", "/tools/echo/execute", True),
    (["read", "execute"], "post", "/groups", False),
    (["read", "execute"], "delete", "/tools/echo", False),
    (["read", "execute"], "patch", "/agents/x", False),
]


def test_a_token_has_its_form_and_its_checksum():
    text, presented = bearer_tokens.new_token()
    assert re.fullmatch(r"tcr_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}", text)
    assert bearer_tokens.read_token(text) == presented


@pytest.mark.parametrize("at", [4, 12, 13, 30, 55, 61])
def test_a_mistyped_token_is_recognised_without_asking(at):
    text, _ = bearer_tokens.new_token()
    wrong = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    assert bearer_tokens.read_token(wrong) is None


@pytest.mark.parametrize("text", ["", "tcr_", "tcr_\n", "x" * 1000, "tcr_abcdefgh_" + "é" * 49])
def test_garbage_is_no_token(text):
    assert bearer_tokens.read_token(text) is None
    assert bearer_tokens.read_token(bearer_tokens.new_token()[0] + "\n") is None


def test_only_a_keyed_hash_is_kept(agent):
    text = factories.token(agent.service_account)
    row = Token.objects.get(user=agent.service_account)
    secret = bearer_tokens.read_token(text).secret
    assert secret not in str(vars(row)) and row.secret_hash == bearer_tokens.hashed(secret)
    assert secret not in str(list(AuditRecord.objects.values_list("details", flat=True)))


def test_another_secret_under_a_known_name_is_refused(agent):
    text = factories.token(agent.service_account)
    other, presented = bearer_tokens.new_token()
    body = f"{text[:13]}{presented.secret}"
    check_error(Api(body + bearer_tokens._checksum(body)).get("/tools"), 401, "unauthenticated")
    check_error(Api(other).get("/tools"), 401, "unauthenticated")


@pytest.mark.parametrize("change", [{"revoked_at": timezone.now()}, {"expires_at": timezone.now()}])
def test_a_token_that_stopped_is_refused(agent, change):
    text = factories.token(agent.service_account)
    change = {"created_at": timezone.now() - timedelta(days=2), **change}
    Token.objects.filter(user=agent.service_account).update(**change)
    check_error(Api(text).get("/tools"), 401, "unauthenticated")


def test_a_revocation_holds_from_the_next_request_on(admin_api, agent):
    shown = admin_api.post(f"/agents/{agent.slug}/tokens", {}).json()
    api = Api(shown["token"])
    assert api.get("/tools").status_code == 200
    assert admin_api.delete(f"/agents/{agent.slug}/tokens/{shown['id']}").status_code == 204
    check_error(api.get("/tools"), 401)


def test_a_suspension_holds_from_the_next_request_on(admin_api, api, agent):
    assert api.get("/tools").status_code == 200
    admin_api.post(f"/agents/{agent.slug}/suspend")
    check_error(api.get("/tools"), 401, "agent_suspended")
    admin_api.patch(f"/agents/{agent.slug}", {"active": True})
    assert api.get("/tools").status_code == 200


def test_a_token_is_shown_once(admin_api, agent):
    shown = admin_api.post(f"/agents/{agent.slug}/tokens", {"label": "ci", "days": 1}).json()
    listed = admin_api.get(f"/agents/{agent.slug}/tokens").json()["results"][0]
    assert set(shown) == {"id", "token", "expires_at"}
    assert (listed["label"], listed["prefix"]) == ("ci", shown["token"][:12])
    assert shown["token"] not in str(listed) and "secret_hash" not in listed


WRONG = [
    {"days": 0}, {"days": 366}, {"days": "1"}, {"scopes": []}, {"scopes": ["manage"]},
    {"scopes": ["admin"]}, {"scopes": "read"}, {"label": 1}, {"label": "x" * 101}, {"user": 1},
]  # fmt: skip


def test_a_wrong_token_request_is_400(admin_api, agent, subtests):
    for body in WRONG:
        with subtests.test(body=body):
            check_error(admin_api.post(f"/agents/{agent.slug}/tokens", body), 400)
            assert not agent.service_account.tokens.exists()


def test_a_scope_is_asked_for_before_anything_else(agent, subtests):
    for scopes, method, path, there in SCOPED:
        with subtests.test(scopes=scopes, method=method, path=path, there=there), rolled_back():
            api = Api(factories.token(agent.service_account, scopes=scopes))
            response = getattr(api, method)(path, {} if method != "get" else None)
            assert (response.json().get("code") != "scope_missing") is there


def test_an_agent_never_manages_whatever_its_token_says(organization, agent):
    factories.permit(agent.service_account, "add_toolgroup", "add_tool", "change_agent")
    api = Api(factories.token(agent.service_account, scopes=["read", "execute", "manage"]))
    check_error(api.post("/groups", {"name": "mine"}), 403, "not_permitted")
    check_error(api.patch(f"/agents/{agent.slug}", {"groups": ["*"]}), 403, "not_permitted")
    check_error(api.post("/tools", factories.definition()), 403, "not_permitted")


def test_a_person_manages_what_was_granted_and_nothing_else(organization):
    person = factories.person(organization)
    factories.permit(person, "add_toolgroup")
    api = Api(factories.token(person, scopes=["read", "execute", "manage"]))
    assert api.post("/groups", {"name": "mine"}).status_code == 201
    check_error(api.delete("/groups/mine"), 403, "not_permitted")
    check_error(api.get("/organizations"), 403)


def test_the_last_use_is_noted_once_a_minute(api, agent):
    api.get("/tools")
    first = Token.objects.get(user=agent.service_account).last_used_at
    api.get("/tools")
    assert Token.objects.get(user=agent.service_account).last_used_at == first is not None


# --- logging in -----------------------------------------------------------------------------------


def login(username, password="wrong", ip="10.0.0.1", **more):
    body = {"username": username, "password": password, **more}
    return Client().post("/api/v1/tokens", body, "application/json", REMOTE_ADDR=ip)


def test_a_person_gets_a_token_for_a_password(admin_user):
    response = login(admin_user.username, "correct horse")
    assert response.status_code == 201
    assert Api(response.json()["token"]).get("/tools").status_code == 200


def test_a_personal_token_is_revoked_by_its_owner(admin_user):
    shown = login(admin_user.username, "correct horse").json()
    api = Api(shown["token"])
    assert api.delete(f"/tokens/{shown['id']}").status_code == 204
    check_error(api.get("/tools"), 401)


def test_no_user_revokes_anothers_token(admin_api, agent):
    factories.token(agent.service_account)
    theirs = Token.objects.get(user=agent.service_account)
    check_error(admin_api.delete(f"/tokens/{theirs.pk}"), 404)


def test_wrong_names_and_wrong_passwords_are_answered_alike(admin_user):
    one, other = login(admin_user.username).json(), login("nobody-of-that-name").json()
    assert (one["code"], one["message"]) == (other["code"], other["message"]) == (
        "login_failed", "The name or the password is wrong.",
    )  # fmt: skip


def test_a_service_account_never_logs_in(agent):
    account = agent.service_account
    account.set_password("known")
    account.save()
    check_error(login(account.username, "known"), 401, "login_failed")


def test_a_person_who_was_deactivated_does_not_log_in(admin_user):
    admin_user.is_active = False
    admin_user.save()
    check_error(login(admin_user.username, "correct horse"), 401, "login_failed")


def test_the_eleventh_attempt_waits_also_with_the_right_password(admin_user):
    for _ in range(10):
        check_error(login(admin_user.username), 401, "login_failed")
    body = check_error(
        response := login(admin_user.username, "correct horse"), 429, "too_many_attempts"
    )
    assert 0 < int(response.headers["Retry-After"]) <= 300
    assert (body["limit"], body["used"]) == (10, 10)
    assert login(admin_user.username, "correct horse", ip="10.0.0.2").status_code == 201


def test_failed_attempts_are_on_record_without_the_password(admin_user):
    login(admin_user.username, "hunter2-canary")
    record = AuditRecord.objects.filter(actor=admin_user.username, code="AUTH.LOGIN_FAILED").get()
    assert (record.outcome, record.source_ip) == ("denied", "10.0.0.1")
    assert "hunter2" not in str(vars(record))


def test_nothing_large_is_read_from_an_unknown_user(client, db):
    body = json.dumps({"username": "x" * 20_000, "password": "y"})
    answer = client.post("/api/v1/tokens", body, content_type="application/json")
    assert answer.status_code == 413 and answer.json()["code"] == "too_large"


def with_code(person, **more):
    return login(person.username, "correct horse", **more)


def test_a_password_alone_makes_no_token_for_who_has_a_second_factor(admin_user):
    secret, codes = with_app(admin_user)
    check_error(with_code(admin_user), 401, "code_needed")
    check_error(with_code(admin_user, code="000001"), 401, "login_failed")
    assert with_code(admin_user, code=code_of(secret)).status_code == 201
    check_error(with_code(admin_user, code=code_of(secret)), 401, "login_failed")
    assert with_code(admin_user, code=codes[0]).status_code == 201


def test_codes_are_guessed_no_more_than_at_the_login_page(admin_user):
    secret, _ = with_app(admin_user)
    for _ in range(lockout.SECOND_FACTOR.bounds[0].most):
        with_code(admin_user, code="000001")
    check_error(with_code(admin_user, code=code_of(secret)), 429, "too_many_attempts")
    failed = AuditRecord.objects.filter(actor=admin_user.username)
    assert failed.filter(code="AUTH.SECOND_FACTOR_FAILED").exists()
    assert not failed.filter(code="AUTH.LOGIN_FAILED").exists()


def test_who_must_have_a_second_factor_sets_it_up_before_a_token(admin_user, settings):
    settings.MFA_REQUIRED = "privileged"
    check_error(with_code(admin_user), 403, "second_factor_needed")


WRONG_OVERLAPS = ["P8D", "PT168H1S", "x", 1, None, "-PT1H", ["PT1H"]]


@pytest.fixture
def old(agent):
    factories.token(agent.service_account, scopes=["read"], label="ci", tools=["*"], days=7)
    return newest(agent.service_account)


def newest(user):
    return user.tokens.latest("created_at")


def rotate(api, agent, token, body=None):
    return api.post(f"/agents/{agent.slug}/tokens/{token.pk}/rotate", body)


def test_a_new_token_is_good_for_the_same(admin_api, agent, old):
    shown = rotate(admin_api, agent, old, {"overlap": "PT1H"})
    assert shown.status_code == 201 and set(shown.json()) == {"id", "token", "expires_at"}
    assert shown["Location"] == f"/api/v1/agents/{agent.slug}/tokens/{shown.json()['id']}"
    made = Token.objects.get(pk=shown.json()["id"])
    kept = ("user_id", "scopes", "groups", "tools", "label")
    assert [getattr(made, one) for one in kept] == [getattr(old, one) for one in kept]
    assert abs(made.expires_at - timezone.now() - timedelta(days=7)) < timedelta(minutes=1)
    assert Api(shown.json()["token"]).get("/tools").status_code == 200


def test_the_old_one_ends_after_the_overlap(admin_api, agent):
    text = factories.token(agent.service_account)
    old = newest(agent.service_account)
    rotate(admin_api, agent, old, {"overlap": "PT1H"})
    old.refresh_from_db()
    assert abs(old.expires_at - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)
    assert Api(text).get("/tools").status_code == 200


@pytest.mark.parametrize("body", [None, {}, {"overlap": "PT0S"}])
def test_without_an_overlap_the_old_one_ends_at_once(admin_api, agent, body):
    text = factories.token(agent.service_account)
    assert rotate(admin_api, agent, newest(agent.service_account), body).status_code == 201
    check_error(Api(text).get("/tools"), 401)


def test_an_overlap_makes_no_token_last_longer(admin_api, agent):
    factories.token(agent.service_account, days=1)
    old = newest(agent.service_account)
    ends = old.expires_at
    rotate(admin_api, agent, old, {"overlap": "P7D"})
    old.refresh_from_db()
    assert old.expires_at == ends


def test_an_overlap_lasts_seven_days_at_most(admin_api, agent, old, subtests):
    for overlap in WRONG_OVERLAPS:
        with subtests.test(overlap=overlap):
            check_error(rotate(admin_api, agent, old, {"overlap": overlap}), 400)
    assert agent.service_account.tokens.count() == 1


def test_a_token_that_ended_is_not_replaced(admin_api, agent, old):
    assert rotate(admin_api, agent, old).status_code == 201
    check_error(rotate(admin_api, agent, old), 409, "token_ended")
    assert agent.service_account.tokens.count() == 2


def test_a_rotation_is_on_record_without_the_secret(admin_api, agent, old):
    shown = rotate(admin_api, agent, old, {"overlap": "PT1H"}).json()
    records = AuditRecord.objects.filter(subject=agent.service_account.username)
    made = records.filter(code="TOKEN.CREATE").latest("pk").details
    ended = records.get(code="TOKEN.REVOKE").details
    assert (made["replaces"], ended["token_id"]) == (str(old.pk), str(old.pk))
    assert made["token_id"] == ended["replaced_by"] == shown["id"]
    assert shown["token"][13:] not in f"{made}{ended}"


def test_who_may_not_issue_a_token_does_not_rotate_it(organization, agent, old):
    person = factories.person(organization)
    factories.permit(person, "add_token", "delete_token", "view_agent")
    api = Api(factories.token(person, scopes=["read", "agents"]))
    check_error(rotate(api, agent, old), 403, "grant_beyond_own")
    assert agent.service_account.tokens.count() == 1


def test_a_tokens_address_is_its_agents(organization, admin_api, old):
    check_error(rotate(admin_api, factories.agent(organization), old), 404, "token_not_found")


# --- the caller's own -----------------------------------------------------------------------------


def test_a_token_that_reads_replaces_itself_until_its_own_end(admin_user):
    api = Api(factories.token(admin_user, scopes=["read"], days=3))
    mine = newest(admin_user)
    shown = api.post(f"/tokens/{mine.pk}/rotate", {"overlap": "PT1M"})
    assert shown.status_code == 201
    made = newest(admin_user)
    assert (made.scopes, made.expires_at) == (["read"], mine.expires_at)
    assert Api(shown.json()["token"]).get("/tools").status_code == 200


def test_a_token_that_reads_replaces_no_other(admin_user):
    factories.token(admin_user, scopes=["read", "manage"])
    other = newest(admin_user)
    api = Api(factories.token(admin_user, scopes=["read"]))
    check_error(api.post(f"/tokens/{other.pk}/rotate"), 403, "scope_missing")


def test_no_user_rotates_a_token_that_is_good_for_more_than_their_own(admin_user):
    factories.token(admin_user, scopes=["read", "manage"])
    other = newest(admin_user)
    for scopes, limits, code in (
        (["read", "catalog"], {}, "scope_missing"),
        (["read", "manage"], {"groups": ["default"]}, "token_narrowed"),
    ):
        api = Api(factories.token(admin_user, scopes=scopes, **limits))
        check_error(api.post(f"/tokens/{other.pk}/rotate"), 403, code)
    assert admin_user.tokens.count() == 3


def test_a_token_that_manages_renews_itself(admin_user):
    api = Api(factories.token(admin_user, scopes=["read", "manage"], days=3))
    mine = newest(admin_user)
    assert api.post(f"/tokens/{mine.pk}/rotate").status_code == 201
    assert newest(admin_user).expires_at > mine.expires_at


def test_no_user_rotates_anothers_token(admin_api, old):
    check_error(admin_api.post(f"/tokens/{old.pk}/rotate"), 404, "token_not_found")


def test_an_agent_that_rotates_its_token_leaves_who_issued_it(admin_api, admin_user, agent):
    shown = admin_api.post(f"/agents/{agent.slug}/tokens", {}).json()
    assert Api(shown["token"]).post(f"/tokens/{shown['id']}/rotate").status_code == 201
    assert newest(agent.service_account).created_by == f"person:{admin_user.username}"
