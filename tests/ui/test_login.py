from uuid import uuid4

import pytest
from django.test import Client

from audit import alerts
from audit.models import Alert, AlertRule, AuditRecord
from tests.ui.pages import notes
from tools.models import Organization, User
from tools.ui.login import WRONG

GOOD = "correct horse"


def enter(client: Client, user: str, password: str = GOOD, **more: str):
    return client.post("/login/", {"username": user, "password": password, **more})


def test_a_person_logs_in_and_is_recorded(client: Client, person: User) -> None:
    response = enter(client, person.username)
    assert response.status_code == 302
    assert response["Location"] == "/home/"
    record = AuditRecord.objects.get(code="AUTH.LOGIN", actor=person.username)
    assert record.organization == person.organization.slug
    assert record.source_ip == "127.0.0.1"


def test_a_wrong_password_is_told_and_recorded(client: Client, person: User) -> None:
    response = enter(client, person.username, "wrong")
    assert response.status_code == 401
    assert notes(response)["refused"] == [WRONG]
    assert AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", actor=person.username).exists()


def test_an_unknown_name_is_told_the_same(client: Client, person: User) -> None:
    unknown = enter(client, f"nobody-{uuid4().hex}", "wrong")
    assert notes(unknown)["refused"] == [WRONG]


def test_what_an_unknown_name_was_stands_nowhere_and_its_guesses_are_one_alert(
    client: Client, person: User
) -> None:
    client.defaults["REMOTE_ADDR"] = "10.3.0.1"
    # lint: the product keeps there what it knows of no organization
    first = Organization.objects.earliest("created_at").slug
    for name in ("hunter2-canary", "hunter3-canary"):
        for _ in range(11):
            enter(client, name, "wrong")
    records = AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", source_ip="10.3.0.1")
    told = {(record.organization, record.actor) for record in records}
    assert told == {(first, "An unknown name")}
    assert "canary" not in str([vars(record) for record in records])
    assert len({record.details["typed"] for record in records}) == 2
    AlertRule.objects.update(looked_at=None)
    alerts.raise_all()
    found = Alert.objects.filter(organization=first, rule="password_guessing")
    assert [alert.actor for alert in found] == ["An unknown name"]


def test_the_eleventh_try_is_refused_in_words(client: Client, person: User) -> None:
    client.defaults["REMOTE_ADDR"] = "10.3.0.2"
    for _ in range(10):
        enter(client, person.username, "wrong")
    response = enter(client, person.username)
    assert response.status_code == 429
    assert "refused" in notes(response)
    assert "_auth_user_id" not in client.session


def test_a_service_account_has_no_door_here(client: Client, agent) -> None:
    assert enter(client, agent.service_account.username, "!").status_code == 401


@pytest.mark.parametrize(
    ("where", "led"),
    [
        ("/executions/", "/executions/"), ("/?q=read", "/?q=read"),
        ("https://evil.example/", "/home/"), ("//evil.example", "/home/"),
        ("javascript:alert(1)", "/home/"), ("/\\evil.example", "/home/"),
    ],
)  # fmt: skip
def test_who_was_sent_here_goes_back_and_nowhere_else(
    client: Client, person: User, where: str, led: str
) -> None:
    assert enter(client, person.username, next=where)["Location"] == led


def test_logging_out_needs_a_post_and_is_recorded(client: Client, person: User) -> None:
    enter(client, person.username)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/")["Location"] == "/login/"
    assert "_auth_user_id" not in client.session
    assert AuditRecord.objects.filter(code="AUTH.LOGOUT", actor=person.username).exists()


def test_a_form_without_its_token_is_refused(person: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    assert enter(strict, person.username).status_code == 403


def test_a_part_of_a_page_sends_the_whole_page_to_the_login(client: Client, db: None) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/executions/"}
    response = client.get("/executions/", headers=headers)
    assert response["HX-Redirect"] == "/login/?next=/executions/"


def test_a_suspended_person_is_out_at_once(client_of, person: User) -> None:
    client = client_of()
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert client.get("/")["Location"].startswith("/login/")
