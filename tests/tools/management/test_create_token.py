from datetime import timedelta

import pytest
from django.utils import timezone

from tests import factories
from tests.api import Api
from tools.models import Token


def test_the_token_may_do_what_its_person_may(typed, admin_user):
    ran = typed("create_token", "--user", admin_user.username, "--json")
    assert ran.json["scopes"] == ["read", "execute", "manage"]
    assert Api(ran.json["token"]).get("/agents").status_code == 200


def test_days_and_label_are_kept(typed, admin_user):
    typed("create_token", "--user", admin_user.username, "--days", "3", "--label", "laptop")
    token = Token.objects.get(user=admin_user)
    assert token.label == "laptop"
    assert timedelta(days=2) < token.expires_at - timezone.now() <= timedelta(days=3)


def test_a_token_is_narrower_than_its_person_where_that_is_asked_for(typed, admin_user):
    limits = ["--scope", "read", "--group", "read-only", "--tool", "read_file"]
    ran = typed("create_token", "--user", admin_user.username, *limits, "--json")
    assert (ran.json["scopes"], ran.json["groups"]) == (["read"], ["read-only"])
    listed = Api(ran.json["token"]).get("/tools?group=read-only").json()["results"]
    assert [tool["name"] for tool in listed] == ["read_file"]


def test_a_token_beyond_its_person_is_refused(typed, organization):
    person = factories.person(organization)
    ran = typed("create_token", "--user", person.username, "--group", "write")
    assert ran.code == 1
    assert "these groups are beyond it: write" in ran.err
    assert not Token.objects.filter(user=person).exists()


def test_the_text_shows_the_token_with_a_line_of_curl(typed, admin_user):
    ran = typed("create_token", "--user", admin_user.username)
    assert ran.out.count("tcr_") == 2
    assert "curl -H 'Authorization: Bearer tcr_" in ran.out


def test_an_unknown_user_is_refused(typed, db):
    ran = typed("create_token", "--user", "nobody-here")
    assert (ran.code, ran.err) == (1, "There is no user 'nobody-here'.\n")


def test_the_account_of_an_agent_gets_no_personal_token(typed, agent):
    ran = typed("create_token", "--user", agent.service_account.username)
    assert ran.code == 1
    assert not Token.objects.filter(user=agent.service_account).exists()


def test_a_person_who_is_not_active_gets_none(typed, organization):
    person = factories.person(organization, is_active=False)
    ran = typed("create_token", "--user", person.username)
    assert (ran.code, Token.objects.filter(user=person).count()) == (1, 0)


@pytest.mark.parametrize("days", ["0", "366", "many", "-1"])
def test_a_number_of_days_that_cannot_be_is_bad_usage(typed, days):
    assert typed("create_token", "--user", "x", f"--days={days}").code == 2


def test_a_user_must_be_named(typed):
    assert typed("create_token").code == 2
