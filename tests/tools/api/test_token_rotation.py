"""A token is rotated into one with the same scope, and expires after an overlap."""

from datetime import timedelta

import pytest
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.models import Token

WRONG = ["P8D", "PT168H1S", "x", 1, None, "-PT1H", ["PT1H"]]


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
    for overlap in WRONG:
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


def test_nobody_rotates_a_token_that_is_good_for_more_than_their_own(admin_user):
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


def test_nobody_rotates_anothers_token(admin_api, old):
    check_error(admin_api.post(f"/tokens/{old.pk}/rotate"), 404, "token_not_found")


def test_an_agent_that_rotates_its_token_leaves_who_issued_it(admin_api, admin_user, agent):
    shown = admin_api.post(f"/agents/{agent.slug}/tokens", {}).json()
    assert Api(shown["token"]).post(f"/tokens/{shown['id']}/rotate").status_code == 201
    assert newest(agent.service_account).created_by == f"person:{admin_user.username}"
