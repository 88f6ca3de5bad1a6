"""Accounts that are created or changed on the command line are recorded in the audit log."""

from datetime import timedelta

import pytest
from django.core.management import call_command, get_commands
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools import database
from tests.ui.second_factors import with_app
from tools import bootstrap
from tools.models import Agent, Organization, Token, Tool, UsedName, User

NEW = "a good long one 7"


def latest(organization):
    found = AuditRecord.objects.filter(organization=organization.slug, code="ADMIN.ROW_CHANGE")
    return found.latest("occurred_at")


@pytest.fixture
def typing(monkeypatch):
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: NEW)


def test_djangos_own_commands_are_ours():
    assert {get_commands()[name] for name in ("changepassword", "createsuperuser")} == {"tools"}


def test_a_password_that_is_set_on_the_command_line_is_on_record(typing, admin_user, organization):
    call_command("changepassword", admin_user.username)
    admin_user.refresh_from_db()
    reported = latest(organization)
    assert admin_user.check_password(NEW)
    assert (reported.subject, reported.details["change"]) == (
        f"user:{admin_user.username}",
        "password",
    )
    assert reported.actor.startswith("command:")
    assert reported.details["source"] == {"transport": "command"}
    assert NEW not in str(reported.details)


@pytest.mark.part("faults")
def test_without_evidence_no_password_is_set(committed, typing, admin_user, organization):
    with (
        database.no_evidence_for(organization),
        pytest.raises(Exception, match="cannot be written"),
    ):
        call_command("changepassword", admin_user.username)
    admin_user.refresh_from_db()
    assert admin_user.check_password("correct horse")


def test_a_superuser_who_is_made_on_the_command_line_is_on_record(db):
    call_command("createsuperuser", username="chief-9137", email="c@x.example", interactive=False)
    made = User.objects.get(username="chief-9137")
    reported = latest(made.organization)
    assert (reported.subject, reported.details["after"]["is_superuser"]) == (
        "user:chief-9137",
        True,
    )


@pytest.mark.part("matrices")  # it updates the built-in tools of all organizations
def test_a_new_installation_begins_with_its_first_administrator(organization):
    assert_first_administrator_on_record()


def test_the_first_administrator_is_on_record(organization, monkeypatch):
    asked = []
    monkeypatch.setattr(bootstrap, "note_missing", lambda: asked.append("words"))
    monkeypatch.setattr(
        bootstrap, "install_builtins", lambda *, organization, by: asked.append(organization)
    )
    assert_first_administrator_on_record()
    assert asked[0] == "words" and organization in asked


def test_a_name_that_was_used_makes_no_administrator_again(organization, monkeypatch, caplog):
    monkeypatch.setattr(bootstrap, "note_missing", lambda: None)
    monkeypatch.setattr(bootstrap, "install_builtins", lambda **_: None)
    User.objects.filter(is_superuser=True).update(is_superuser=False)
    User.objects.filter(username="admin").update(username="another")
    UsedName.objects.get_or_create(name="admin", defaults={"user": factories.person(organization)})
    assert bootstrap.first_administrator() is None
    assert "createsuperuser" in caplog.text


def assert_first_administrator_on_record():
    User.objects.filter(is_superuser=True).update(is_superuser=False)
    User.objects.filter(username="admin").update(username="another")
    UsedName.objects.filter(name="admin").delete()  # the name was never used
    password = bootstrap.first_administrator()
    first = Organization.objects.earliest("created_at")  # lint: the product puts them there
    reported = latest(first)
    assert (reported.subject, reported.actor) == ("user:admin", "bootstrap")
    assert password and password not in str(reported.details)


def test_a_second_factor_is_taken_away_on_the_command_line(admin_user, capsys):
    with_app(admin_user)
    call_command("reset_second_factor", admin_user.username)
    assert "has no second factor any more" in capsys.readouterr().out
    found = AuditRecord.objects.get(
        code="AUTH.SECOND_FACTOR_RESET", organization=admin_user.organization.slug
    )
    assert found.actor.startswith("command:")
    call_command("reset_second_factor", admin_user.username)
    assert "had none" in capsys.readouterr().out


def test_no_users_second_factor_is_not_taken(db, capsys):
    with pytest.raises(SystemExit):
        call_command("reset_second_factor", "nobody-7391")
    assert "There is no person" in capsys.readouterr().err


def test_the_printed_token_works_at_once(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--json")
    assert ran.code == 0
    assert Api(ran.json["token"]).get("/tools").status_code == 200


def test_without_more_an_agent_is_granted_default_and_nothing_else(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--json")
    assert (ran.json["groups"], ran.json["permissions"]) == (["default"], [])


def test_groups_tools_and_permissions_are_granted_as_named(typed, organization):
    grants = ["--group", "read-only", "write", "--group", "x", "--tool", "read_file"]
    ran = typed(
        *("create_agent", "bot", "--organization", organization.slug, *grants),
        *("--permission", "tool.web", "--json"),
    )
    assert ran.json["groups"] == ["read-only", "write", "x"]
    assert (ran.json["tools"], ran.json["permissions"]) == (["read_file"], ["tool.web"])


def test_a_tool_group_is_granted_instead_of_every_tool(typed, organization):
    words = ["--group", "write", "--tool-group", "write"]
    ran = typed("create_agent", "bot", "--organization", organization.slug, *words, "--json")
    assert (ran.json["tools"], ran.json["tool_groups"]) == ([], ["write"])
    listed = Api(ran.json["token"]).get("/tools?group=write").json()["results"]
    assert [tool["name"] for tool in listed] == ["write_file"]


def test_the_text_shows_the_token_once_with_a_line_of_curl(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--group", "write")
    last = ran.out.splitlines()[-1]
    assert last.startswith("curl -H 'Authorization: Bearer tcr_")
    assert last.endswith("/api/v1/tools?group=write'")
    assert ran.err == ""


def test_group_names_are_quoted_in_the_line_of_curl(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--group", "a b'&c")
    assert ran.out.splitlines()[-1].endswith("/api/v1/tools?group=a%20b%27%26c'")


def test_a_new_organization_is_made_with_the_built_in_tools_and_said(typed, db):
    ran = typed("create_agent", "bot", "--organization", "brand-new", "--tier", "Teams")
    made = Organization.objects.get(slug="brand-new")
    assert made.tier.name == "Teams"
    assert Tool.objects.filter(organization=made, name="read_file").exists()
    assert "The organization brand-new was made, with the tier Teams." in ran.out


def test_tier_sets_the_tier_of_an_organization_that_is_there(typed, organization):
    slug = organization.slug
    ran = typed("create_agent", "bot", "--organization", slug, "--tier", "Core", "--json")
    organization.refresh_from_db()
    assert organization.tier.name == ran.json["tier"] == "Core"
    assert ran.json["notes"] == [
        f"The tier of the organization {slug} is now Core; it was Enterprise."
    ]


def test_who_typed_it_is_evidence(typed, organization):
    typed("create_agent", "bot", "--organization", organization.slug)
    record = AuditRecord.objects.get(organization=organization.slug, code="ADMIN.AGENT_CREATE")
    assert record.actor.startswith("command:")
    assert record.request_id.startswith("command-")


def test_a_second_agent_of_that_name_is_refused_in_one_sentence(typed, organization):
    factories.agent(organization, "bot")
    ran = typed("create_agent", "bot", "--organization", organization.slug)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "There is an agent bot already.\n"


def test_a_refusal_leaves_nothing_behind(typed, db):
    ran = typed("create_agent", "bot", "--organization", "brand-new", "--tool", "no_such_tool")
    assert ran.code == 1
    assert not Organization.objects.filter(slug="brand-new").exists()
    assert not Agent.objects.filter(slug="bot", organization__slug="brand-new").exists()


def test_an_unknown_tier_is_refused_and_the_known_ones_are_named(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--tier", "Gold")
    assert ran.code == 1
    assert "only: Core, WriterPro, Teams, Enterprise" in ran.err


def test_errors_are_json_where_json_was_asked_for(typed, organization):
    factories.agent(organization, "bot")
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--json")
    assert ran.error["code"] == "agent_exists"


def test_a_name_that_is_no_slug_is_bad_usage(typed, db):
    ran = typed("create_agent", "Not A Slug")
    assert ran.code == 2
    assert "is no slug" in ran.err


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
