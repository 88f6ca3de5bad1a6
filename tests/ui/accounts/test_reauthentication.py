"""Proof that is not old: where it is asked, how it is given, and that nothing is lost meanwhile."""

import os
import re
import time
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory
from django.urls import NoReverseMatch, reverse

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.authenticators import code_of
from tests.tools.api.test_authorization_matrix import ADDRESSES
from tests.ui.pages import inline_code, notes, text
from tests.ui.second_factors import options_on, password, with_app, with_key
from tools.accounts.login import lockout
from tools.models import Organization, SigningKey, Token, User
from tools.ui.accounts import reauthentication
from tools.ui.accounts.reauthentication import WRONG_PROOF
from tools.web import sealed_forms

GOOD = "correct horse"
TOKEN = {"label": "<b>laptop</b>", "days": "7", "scope": ["read", "execute"]}


def grow_old(client: Client) -> Client:
    session = client.session
    session["authenticated_at"] = int(time.time()) - 901
    session.save()
    return client


def sealed(page: Any) -> str:
    (found,) = re.findall(r'name="again.sealed" value="([^"]+)"', text(page))
    return str(found)


def is_reauthentication_page(page: Any) -> bool:
    return "asks-for-proof" in notes(page)


@pytest.fixture
def old(client_of, person: User) -> Client:
    """A browser that was left open."""
    return grow_old(client_of())


def test_what_one_was_about_to_send_is_kept_and_goes_on(old: Client, person: User) -> None:
    page = old.post("/profile/tokens", TOKEN)
    assert (
        is_reauthentication_page(page)
        and inline_code(page) == []
        and "no-store" in page["Cache-Control"]
    )
    assert "laptop" not in text(page) and 'value="execute"' not in text(page)
    assert not Token.objects.filter(user=person).exists()
    again = {"again.sealed": sealed(page), "again.password": GOOD}
    made = old.post("/profile/tokens", again, follow=True)
    assert re.search(r"tcr_\w{8}_\w{49}", text(made))
    assert Token.objects.get(user=person).scopes == ["read", "execute"]
    assert AuditRecord.objects.filter(code="AUTH.AGAIN", actor=person.username).count() == 1


def test_a_wrong_answer_keeps_what_was_sent(old: Client, person: User) -> None:
    first = old.post("/profile/tokens", TOKEN)
    wrong = old.post("/profile/tokens", {"again.sealed": sealed(first), "again.password": "no"})
    assert wrong.status_code == 401
    old.post("/profile/tokens", {"again.sealed": sealed(wrong), "again.password": GOOD})
    assert Token.objects.get(user=person).label == "<b>laptop</b>"


def test_what_is_kept_is_good_for_one_session_one_address_and_an_hour(
    old: Client, client_of, person: User, monkeypatch
) -> None:
    kept = {"again.sealed": sealed(old.post("/profile/tokens", TOKEN)), "again.password": GOOD}
    others = grow_old(client_of()).post("/profile/tokens", kept)
    elsewhere = grow_old(old).post("/keys/", kept)
    monkeypatch.setattr(sealed_forms, "SEALED_FORM_S", -1)
    late = grow_old(old).post("/profile/tokens", kept)
    changed = grow_old(old).post("/profile/tokens", kept | {"again.sealed": "x" * 80})
    assert {one.status_code for one in (others, elsewhere, late, changed)} == {400}
    assert not Token.objects.filter(user=person).exists()


def test_a_file_is_kept_too(admin_client: Client, organization: Organization) -> None:
    factories.tool(organization)
    page = grow_old(admin_client).post(
        "/groups/new/", {"name": "with-file", "more": SimpleUploadedFile("a.json", b"{}")}
    )
    assert is_reauthentication_page(page)
    request = RequestFactory().post("/groups/new/")
    request.session = admin_client.session
    sealed_forms.restore_form(request, sealed(page))
    assert request.POST["name"] == "with-file"
    assert request.FILES["more"].read() == b"{}"


def test_once_proven_nothing_is_asked_for_a_while(old: Client, person: User) -> None:
    old.post("/profile/tokens", TOKEN | {"again.password": GOOD})
    assert not is_reauthentication_page(old.post("/profile/tokens", TOKEN))
    assert Token.objects.filter(user=person).count() == 2


def test_a_wrong_password_sends_nothing_and_loses_nothing(old: Client, person: User) -> None:
    page = old.post("/profile/tokens", TOKEN | {"again.password": "wrong-canary"})
    assert page.status_code == 401 and notes(page)["refused"] == [WRONG_PROOF]
    assert sealed(page) and "canary" not in text(page)
    assert not Token.objects.filter(user=person).exists()
    assert AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", actor=person.username).exists()


def test_guesses_are_counted_as_at_the_login(old: Client, person: User) -> None:
    old.defaults["REMOTE_ADDR"] = "10.9.5.1"
    for _ in range(lockout.PAIR_LIMIT.most):
        old.post("/profile/tokens", TOKEN | {"again.password": "wrong"})
    page = old.post("/profile/tokens", TOKEN | {"again.password": GOOD})
    assert page.status_code == 429 and int(page["Retry-After"]) > 0
    assert not Token.objects.filter(user=person).exists()


def test_a_code_of_the_app_is_proof(client_of, person: User) -> None:
    secret, codes = with_app(person)
    client = grow_old(client_of())
    recovers = client.post("/profile/tokens", TOKEN | {"again.code": codes[0]})
    assert recovers.status_code == 401  # those are for coming in
    client.post("/profile/tokens", TOKEN | {"again.code": code_of(secret)})
    assert Token.objects.filter(user=person).count() == 1


def test_a_security_key_is_proof(client_of, person: User) -> None:
    client = client_of()
    key = with_key(client)
    page = grow_old(client).post("/profile/tokens", TOKEN)
    answer = key.get(options_on(page))
    client.post("/profile/tokens", TOKEN | {"again.key": answer})
    assert Token.objects.filter(user=person).count() == 1


def test_a_page_comes_after_the_proof(admin_client: Client, organization: Organization) -> None:
    key = SigningKey.objects.filter(organization=organization).first()
    place = reverse("key-distrust", args=[key.key_id if key else "none"])
    led = grow_old(admin_client).get(place)
    assert led["Location"] == f"/login/again/?next={place.replace('/', '%2F')}"
    assert is_reauthentication_page(admin_client.get(led["Location"]))
    data = {"again.password": GOOD, "next": place}
    assert admin_client.post("/login/again/", data)["Location"] == place


def test_a_download_begins_after_the_proof(admin_client: Client) -> None:
    led = grow_old(admin_client).get("/export/?format=yaml")
    assert led.status_code == 302
    data = {"again.password": GOOD, "next": "/export/?format=yaml"}
    page = admin_client.post("/login/again/", data)
    assert '<meta http-equiv="refresh" content="0; url=/export/?format=yaml">' in text(page)
    assert admin_client.get("/export/?format=yaml")["Content-Type"].startswith("application/yaml")


@pytest.mark.parametrize("where", ["https://evil.example", "//evil.example", "javascript:alert(1)"])
def test_a_redirect_to_another_site_is_refused(old: Client, where: str) -> None:
    page = old.post("/login/again/", {"again.password": GOOD, "next": where})
    assert page["Location"] == "/home/"


def test_a_part_of_a_page_leads_the_whole_page_there(old: Client, person: User) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/profile/"}
    answer = old.post("/profile/tokens", TOKEN, headers=headers)
    assert answer["HX-Redirect"] == "/login/again/?next=%2Fprofile%2F&kept=1"
    page = old.get(answer["HX-Redirect"])
    assert 'action="/profile/tokens"' in text(page)
    old.post("/profile/tokens", {"again.sealed": sealed(page), "again.password": GOOD})
    assert Token.objects.get(user=person).label == "<b>laptop</b>"
    assert "again.sealed" not in text(old.get(answer["HX-Redirect"]))


def test_the_api_in_a_browsers_session_is_refused_in_json(admin_client: Client) -> None:
    grow_old(admin_client)
    answer = admin_client.post("/api/v1/signing-keys", "{}", content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "fresh_authentication_needed")
    link = admin_client.get("/api/v1/audit/export", headers={"Accept": "text/html"})
    assert link["Location"].startswith("/login/again/?next=")
    assert admin_client.get("/api/v1/audit/export").status_code == 403


def test_a_token_is_proof_of_its_own(admin_user: User, admin_client: Client) -> None:
    grow_old(admin_client)
    api = Api(factories.token(admin_user, scopes=["read", "execute", "manage"]))
    assert api.get("/tools/export").status_code == 200


def test_an_authorization_header_is_no_way_round_on_a_page(old: Client, person: User) -> None:
    page = old.post("/profile/tokens", TOKEN, headers={"Authorization": "Bearer x"})
    assert is_reauthentication_page(page) and not Token.objects.filter(user=person).exists()


def test_changes_in_the_administration_are_kept_too(admin_client: Client, person: User) -> None:
    place = f"/admin/tools/user/{person.pk}/password/"
    data = {"usable_password": "true", "password1": "a good long one 7",
            "password2": "a good long one 7"}  # fmt: skip
    assert is_reauthentication_page(grow_old(admin_client).post(place, data))
    person.refresh_from_db()
    assert person.check_password(GOOD)
    assert admin_client.post(place, data | {"again.password": GOOD}).status_code == 302
    person.refresh_from_db()
    assert person.check_password("a good long one 7")


def test_a_form_without_its_token_is_refused_before(person: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
    grow_old(client)
    data = TOKEN | {"again.password": GOOD}
    assert client.post("/profile/tokens", data).status_code == 403
    assert not Token.objects.filter(user=person).exists()


def test_looking_is_never_asked_for(old: Client) -> None:
    for place in ("/", "/home/", "/profile/", "/executions/", "/profile/factors/"):
        assert old.get(place).status_code == 200, place


@pytest.mark.parametrize("change", ["absent", "future"])
def test_a_session_that_does_not_say_when_is_old(client_of, change: str) -> None:
    client = client_of()
    session = client.session
    if change == "absent":
        del session["authenticated_at"]
    else:
        session["authenticated_at"] = int(time.time()) + 3600
    session.save()
    assert is_reauthentication_page(client.post("/profile/tokens", TOKEN))


def test_much_is_not_carried_but_leads_back(old: Client, settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100_000
    page = old.post(
        "/profile/tokens", TOKEN | {"label": os.urandom(40_000).hex()},
        headers={"Referer": "http://testserver/profile/"},
    )  # fmt: skip
    assert page["Location"] == "/login/again/?next=%2Fprofile%2F"


@pytest.mark.parametrize(
    ("changes", "asks"),
    [({"active": False}, False), ({"active": False, "description": "gone"}, False),
     ({"active": True}, True), ({"groups": []}, True), ({"active": False, "groups": ["*"]}, True),
     ({"max_in_flight": None}, True), ({"active": 0}, True)],
    ids=str,
)  # fmt: skip
def test_suspending_asks_nothing_and_any_other_change_does(
    admin_client: Client, agent, changes, asks
) -> None:
    answer = grow_old(admin_client).patch(
        f"/api/v1/agents/{agent.slug}", changes, content_type="application/json"
    )
    assert (answer.json().get("code") == "fresh_authentication_needed") == asks
    agent.refresh_from_db()
    assert agent.active == asks


def test_the_addresses_that_are_open_are_there() -> None:
    assert ADDRESSES.keys() >= reauthentication.OPEN_VIEWS


def test_every_change_of_the_administration_asks(admin_client: Client) -> None:
    place = "/admin/tools/user/add/"
    assert is_reauthentication_page(grow_old(admin_client).post(place, {}))
    assert not is_reauthentication_page(admin_client.get(place))
    with pytest.raises(NoReverseMatch):
        reverse("index")


@pytest.mark.parametrize("referer", ["http://evil.example/", "http://testserver//evil.example/"])
def test_the_way_back_leads_nowhere_else(old: Client, referer: str) -> None:
    page = old.post("/profile/tokens", TOKEN, headers={"Referer": referer})
    assert "evil" not in text(page)


def test_a_user_without_a_password_sees_other_methods(person: User) -> None:
    client = password(person)
    person.set_unusable_password()
    person.save()
    client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
    page = text(grow_old(client).post("/profile/tokens", TOKEN))
    assert "nothing-to-prove-by" in notes(page) and "again-password" not in page
