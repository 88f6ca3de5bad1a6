"""`/login/second/`: both factors are needed to log in, and guesses of the second are limited."""

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.authenticators import code_of
from tests.ui.pages import inline_code, notes, text
from tests.ui.second_factors import is_in, options_on, password, with_app, with_key
from tools.accounts.login.lockout import SECOND_FACTOR
from tools.models import Organization, RecoveryCode, SecurityKey, User
from tools.ui.accounts.login import WRONG_CODE, WRONG_KEY

SECOND = "/login/second/"


def enter(client: Client, **given: str):
    return client.post(SECOND, given)


def recorded(code: str, person: User) -> AuditRecord:
    return AuditRecord.objects.get(code=code, actor=person.username)


def test_a_password_alone_opens_nothing(person: User) -> None:
    with_app(person)
    client = Client()
    data = {"username": person.username, "password": "correct horse", "next": "/executions/"}
    assert client.post("/login/", data)["Location"] == SECOND
    assert not is_in(client)
    for place in ("/", "/profile/", "/admin/", "/api/v1/tools", "/audit/"):
        assert client.get(place).status_code in (302, 401), place
    assert not AuditRecord.objects.filter(code="AUTH.LOGIN", actor=person.username).exists()


def test_the_code_lets_in_and_leads_where_one_wanted_to_go(person: User) -> None:
    secret, _ = with_app(person)
    client = password(person, next="/executions/")
    assert inline_code(client.get(SECOND)) == []
    assert enter(client, code=code_of(secret))["Location"] == "/executions/"
    assert is_in(client) and client.get("/profile/").status_code == 200
    said = recorded("AUTH.LOGIN", person).details
    assert (said["by"], said["second_factor"]) == ("password", "authenticator app")


def test_a_code_is_good_once(person: User) -> None:
    secret, _ = with_app(person)
    code = code_of(secret)
    assert enter(password(person), code=code).status_code == 302
    again = password(person)
    assert enter(again, code=code).status_code == 401
    assert not is_in(again)


def test_an_older_code_is_not_good_after_a_newer_one(person: User) -> None:
    secret, _ = with_app(person)
    newer, older = code_of(secret), code_of(secret, later_s=-30)
    assert enter(password(person), code=newer).status_code == 302
    assert enter(password(person), code=older).status_code == 401


@pytest.mark.parametrize("later_s", [-90, 90])
def test_a_code_of_another_minute_is_not_good(person: User, later_s: int) -> None:
    secret, _ = with_app(person)
    assert enter(password(person), code=code_of(secret, later_s=later_s)).status_code == 401


@pytest.mark.parametrize(
    "code", ["", "abc", "12345", "0" * 4000, "１２３４５６", "' or 1=1", "-12345"]
)
def test_an_invalid_code_is_refused(person: User, code: str) -> None:
    with_app(person)
    page = enter(password(person), code=code)
    assert page.status_code == 401 and notes(page)["refused"] == [WRONG_CODE]


def test_a_wrong_code_is_on_record_without_the_code(person: User) -> None:
    with_app(person)
    enter(password(person), code="wrong-canary")
    record = recorded("AUTH.SECOND_FACTOR_FAILED", person)
    assert record.outcome == "denied" and "canary" not in str(vars(record))


def test_guesses_are_bounded_and_a_right_password_forgives_none(person: User) -> None:
    secret, _ = with_app(person)
    here = {"REMOTE_ADDR": "10.9.0.1"}
    for _ in range(SECOND_FACTOR.bounds[0].most):
        assert enter(password(person, Client(**here)), code="000001").status_code == 401
    client = password(person, Client(**here))
    page = enter(client, code=code_of(secret))
    assert page.status_code == 429 and int(page["Retry-After"]) > 0
    assert not is_in(client)


def test_guesses_from_many_addresses_are_bounded(person: User) -> None:
    with_app(person)
    for number in range(SECOND_FACTOR.bounds[2].most):
        client = password(person, Client(REMOTE_ADDR=f"10.9.1.{number}"))
        assert enter(client, code="000001").status_code == 401
    client = password(person, Client(REMOTE_ADDR="10.9.2.1"))
    assert enter(client, code="000001").status_code == 429


def test_a_recovery_code_lets_in_once(person: User) -> None:
    _, codes = with_app(person)
    assert enter(password(person), code=codes[0].upper().replace("-", " ")).status_code == 302
    assert enter(password(person), code=codes[0]).status_code == 401
    assert RecoveryCode.objects.unused().filter(user=person).count() == 9
    record = recorded("AUTH.RECOVERY_CODE_USE", person)
    assert record.details["left"] == 9 and codes[0] not in str(vars(record))


def test_a_recovery_code_of_another_user_is_refused(
    person: User, organization: Organization
) -> None:
    other = factories.person(organization, password="correct horse")
    with_app(person)
    _, theirs = with_app(other)
    assert enter(password(person), code=theirs[0]).status_code == 401


def test_a_security_key_lets_in(client_of, person: User) -> None:
    key = with_key(client_of())
    client = password(person)
    page = client.get(SECOND)
    assert "data-asks-key" in text(page) and inline_code(page) == []
    assert enter(client, key=key.get(options_on(page))).status_code == 302
    assert is_in(client)
    assert recorded("AUTH.LOGIN", person).details["second_factor"] == "security key"
    assert SecurityKey.objects.get(user=person).sign_count == 1


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("origin", "https://testserver"),
        ("origin", "http://testserver.evil.example"),
        ("host", "evil.example"),
        ("flags", 1),  # present, and not asked for finger or PIN
        ("count", -1),  # a copy: the counter does not rise
    ],
)
def test_a_key_that_says_something_else_does_not(
    client_of, person: User, what: str, value: object
) -> None:
    key = with_key(client_of())
    SecurityKey.objects.update(sign_count=0 if what != "count" else 5)
    setattr(key, what, value)
    client = password(person)
    page = enter(client, key=key.get(options_on(client.get(SECOND))))
    assert page.status_code == 401 and notes(page)["refused"] == [WRONG_KEY]
    assert not is_in(client)


def test_what_a_key_signed_is_good_once(client_of, person: User) -> None:
    key = with_key(client_of())
    client = password(person)
    options = options_on(client.get(SECOND))
    answer = key.get(options)
    assert enter(client, key="{}").status_code == 401  # the challenge is spent
    assert enter(client, key=answer).status_code == 401
    assert not is_in(client)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "answer",
    ["{", "[]", "null", "1", '{"id": 1}', '{"id": "AA", "rawId": "AA", "response": {}}',
     '{"rawId": "AA", "response": {"clientDataJSON": "AA", "authenticatorData": "AA", '
     '"signature": "AA"}, "id": "AA", "type": "public-key"}', "[" * 20_000, "x" * 70_000],
)  # fmt: skip
def test_an_invalid_answer_of_a_key_is_refused(client_of, person: User, answer: str) -> None:
    with_key(client_of())
    client = password(person)
    client.get(SECOND)
    assert enter(client, key=answer).status_code == 401


def test_another_persons_key_does_not(client_of, person: User, organization: Organization) -> None:
    other = factories.person(organization, password="correct horse")
    theirs = with_key(password(other))
    with_app(person)
    with_key(client_of())
    client = password(person)
    assert enter(client, key=theirs.get(options_on(client.get(SECOND)))).status_code == 401


def test_who_has_shown_no_password_begins_at_the_login(person: User) -> None:
    secret, _ = with_app(person)
    client = Client()
    assert client.get(SECOND)["Location"] == "/login/"
    assert enter(client, code=code_of(secret))["Location"] == "/login/"


@pytest.mark.parametrize("change", ["password", "inactive", "late"])
def test_the_first_half_does_not_last(person: User, change: str) -> None:
    secret, _ = with_app(person)
    client = password(person)
    if change == "password":
        person.set_password("another one 7")
        person.save()
    elif change == "inactive":
        User.objects.filter(pk=person.pk).update(is_active=False)
    else:
        session = client.session
        session["entering"] = session["entering"] | {"until": 1}
        session.save()
    assert enter(client, code=code_of(secret))["Location"] == "/login/"
    assert not is_in(client)


def test_who_was_in_before_is_out_while_another_comes_in(
    client_of, person: User, organization: Organization
) -> None:
    client = client_of()
    other = factories.person(organization, password="correct horse")
    with_app(other)
    password(other, client)
    assert not is_in(client)


def test_the_administration_has_no_other_door(admin_user: User) -> None:
    with_app(admin_user)
    client = Client()
    data = {"username": admin_user.username, "password": "correct horse"}
    client.post("/admin/login/", data)
    assert not is_in(client)
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert client.get("/admin/login/")["Location"].startswith("/login/")
