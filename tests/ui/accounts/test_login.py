import re
from uuid import uuid4

import pytest
from django.test import Client

from audit.alerts import alerts
from audit.models import Alert, AlertRule, AuditRecord
from tests.ui.pages import notes
from tools.models import Organization, User
from tools.ui.accounts.login import WRONG_LOGIN

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


def test_a_wrong_password_is_refused_and_recorded(client: Client, person: User) -> None:
    response = enter(client, person.username, "wrong")
    assert response.status_code == 401
    assert notes(response)["refused"] == [WRONG_LOGIN]
    assert AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", actor=person.username).exists()


def test_an_unknown_name_is_refused_the_same(client: Client, person: User) -> None:
    unknown = enter(client, f"nobody-{uuid4().hex}", "wrong")
    assert notes(unknown)["refused"] == [WRONG_LOGIN]


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
    actors = {(record.organization, record.actor) for record in records}
    assert actors == {(first, "An unknown name")}
    assert "canary" not in str([vars(record) for record in records])
    assert len({record.details["typed"] for record in records}) == 2
    AlertRule.objects.update(looked_at=None)
    alerts.raise_all_alerts()
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
    answer = enter(strict, person.username)
    assert answer.status_code == 302 and answer["Location"].startswith("/login/?")
    assert "_auth_user_id" not in strict.session


def tab(client: Client, place: str = "/login/") -> str:
    """The token of a form as an open tab has it."""
    page = client.get(place).content.decode()
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found
    return found[1]


def test_an_old_tab_of_the_login_leads_on_for_who_is_logged_in_meanwhile(person: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    said = {"username": person.username, "password": GOOD, "next": "/executions/"}
    first, second = tab(strict), tab(strict)
    assert strict.post("/login/", {**said, "csrfmiddlewaretoken": second}).status_code == 302
    answer = strict.post("/login/", {**said, "csrfmiddlewaretoken": first}, follow=True)
    assert (answer.status_code, answer.redirect_chain[-1][0]) == (200, "/executions/")


@pytest.mark.parametrize("place", ["/login/", "/login/second/"])
def test_an_old_tab_of_the_login_leads_back_to_a_login(person: User, place: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post(place, {"next": "/tools/", "csrfmiddlewaretoken": "x" * 64}, follow=True)
    assert answer.status_code == 200 and answer.redirect_chain[0][0].startswith("/login/?")
    shown = answer.content.decode()
    assert "open for too long" in shown and 'value="/tools/"' in shown


@pytest.mark.parametrize("onwards", ["https://evil.example/", "//evil.example", "/login/"])
def test_an_old_tab_leads_nowhere_else(person: User, onwards: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(person)
    answer = strict.post("/login/", {"next": onwards}, follow=True)
    assert not any("evil" in place.partition("?")[0] for place, _ in answer.redirect_chain)
    assert answer.redirect_chain[-1][0] == "/home/"


def test_another_form_of_an_earlier_login_says_so(person: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(person)
    answer = strict.post("/logout/", {"csrfmiddlewaretoken": "x" * 64})
    assert answer.status_code == 403 and "earlier login" in answer.content.decode()


def test_a_part_of_a_page_sends_the_whole_page_to_the_login(client: Client, db: None) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/executions/"}
    response = client.get("/executions/", headers=headers)
    assert response["HX-Redirect"] == "/login/?next=/executions/"


def test_a_suspended_person_is_out_at_once(client_of, person: User) -> None:
    client = client_of()
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert client.get("/")["Location"].startswith("/login/")


def test_a_session_from_before_the_backend_was_moved_goes_on(admin_user):
    client = Client()
    client.force_login(admin_user, backend="tools.policy.login.PeopleBackend")
    assert client.get("/profile/").status_code == 200
