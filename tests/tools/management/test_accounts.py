"""Accounts that are created or changed on the command line are recorded in the audit log."""

import pytest
from django.core.management import call_command, get_commands

from audit.models import AuditRecord
from tests import factories
from tests.tools import database
from tests.ui.second_factors import with_app
from tools import bootstrap
from tools.models import Organization, UsedName, User

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
    told = latest(organization)
    assert admin_user.check_password(NEW)
    assert (told.subject, told.details["change"]) == (f"user:{admin_user.username}", "password")
    assert told.actor.startswith("command:")
    assert told.details["source"] == {"transport": "command"}
    assert NEW not in str(told.details)


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
    told = latest(made.organization)
    assert (told.subject, told.details["after"]["is_superuser"]) == ("user:chief-9137", True)


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
    told = latest(first)
    assert (told.subject, told.actor) == ("user:admin", "bootstrap")
    assert password and password not in str(told.details)


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


def test_nobodys_second_factor_is_not_taken(db, capsys):
    with pytest.raises(SystemExit):
        call_command("reset_second_factor", "nobody-7391")
    assert "There is no person" in capsys.readouterr().err
