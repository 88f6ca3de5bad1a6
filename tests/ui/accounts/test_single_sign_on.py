"""Coming in by an identity provider, over real HTTP: who gets an account, which roles, and who
does not come in."""

import html
import re
import time
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.stubs.identity_provider import CLIENT, SECRET, OpenIdStub, openid_serving, rsa_key
from tests.ui.pages import codes, inline_code, notes, text
from tests.ui.second_factors import is_in, password, with_app
from tools.accounts.login.identity_provider import _made
from tools.accounts.login.single_sign_on import NO_ROLE
from tools.models import Organization, SingleSignOn, User

BEGIN, BACK = "/login/sso/", "/login/sso/back/"


@pytest.fixture
def provider(settings, organization: Organization) -> Iterator[OpenIdStub]:
    with openid_serving() as stub:
        settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = stub.issuer, CLIENT
        settings.OIDC_CLIENT_SECRET, settings.OIDC_NAME = SECRET, "Example ID"
        settings.OIDC_ORGANIZATION = organization.slug
        settings.OIDC_ROLES = {"admins": ["administrator"], "staff": ["approver", "viewer"]}
        stub.claims |= {"groups": ["staff"], "sub": f"subject of {organization.slug}"}
        _made.cache_clear()
        yield stub


def go(client: Client, provider: OpenIdStub, **asked: str):
    """To the provider and back."""
    there = client.get(BEGIN, asked)
    assert there.status_code == 302, text(there)
    return client.get(provider.consent(there["Location"]))


def linked_user(provider: OpenIdStub) -> User:
    return SingleSignOn.objects.get(subject=provider.claims["sub"]).user


def roles_of(user: User) -> list[str]:
    return sorted(user.groups.values_list("name", flat=True))


def test_the_first_login_makes_an_account_with_the_roles_of_its_groups(
    provider: OpenIdStub, organization: Organization
) -> None:
    client = Client()
    assert go(client, provider, next="/executions/")["Location"] == "/executions/"
    person = linked_user(provider)
    assert (person.organization, person.get_full_name()) == (organization, "Mira Okafor")
    assert roles_of(person) == ["role:approver", "role:viewer"]
    assert not person.has_usable_password() and not person.is_staff
    assert client.get("/profile/").status_code == 200
    said = AuditRecord.objects.get(code="AUTH.LOGIN", actor=person.username).details
    assert (said["by"], said["second_factor"]) == ("single sign-on", "none")
    grants = AuditRecord.objects.get(code="ADMIN.GRANT_CHANGE", organization=organization.slug)
    assert grants.details["added"] == {"roles": ["role:approver", "role:viewer"]}


def test_what_a_stranger_began_lasts_minutes_and_a_login_as_long_as_any(
    provider: OpenIdStub,
) -> None:
    client = Client()
    there = client.get(BEGIN)
    assert client.session.get_expiry_age() == 600
    client.get(provider.consent(there["Location"]))
    assert client.session.get_expiry_age() == settings.SESSION_COOKIE_AGE


def test_what_is_asked_carries_state_nonce_and_pkce(provider: OpenIdStub) -> None:
    go(Client(), provider)
    asked, form = provider.asked[0], provider.forms[0]
    assert asked["code_challenge_method"] == "S256" and asked["state"] and asked["nonce"]
    assert asked["redirect_uri"] == "http://testserver/login/sso/back/"
    assert len(form["code_verifier"]) >= 43
    assert SECRET not in str(asked)


def test_the_second_login_is_the_same_account(provider: OpenIdStub) -> None:
    go(Client(), provider)
    person = linked_user(provider)
    provider.claims["preferred_username"] = "renamed"
    go(Client(), provider)
    assert linked_user(provider) == person
    assert User.objects.filter(username="renamed").count() == 0


def test_roles_are_kept_true_at_each_login(provider: OpenIdStub) -> None:
    go(Client(), provider)
    person = linked_user(provider)
    own = Group.objects.create(name=f"our own {person.pk}")
    person.groups.add(own, Group.objects.get(name="role:auditor"))
    provider.claims["groups"] = ["admins", "unknown"]
    go(Client(), provider)
    person.refresh_from_db()
    assert roles_of(person) == [own.name, "role:administrator", "role:auditor"]
    assert person.is_staff
    provider.claims["groups"] = ["staff"]
    go(Client(), provider)
    person.refresh_from_db()
    assert "role:administrator" not in roles_of(person)


def test_who_has_no_role_left_is_out_and_so_is_every_browser(provider: OpenIdStub) -> None:
    before, client = Client(), Client()
    go(before, provider)
    person = linked_user(provider)
    provider.claims["groups"] = []
    page = go(client, provider)
    assert page.status_code == 403 and notes(page)["refused"] == [NO_ROLE]
    assert not is_in(client) and before.get("/profile/").status_code == 302
    assert roles_of(person) == []
    failed = AuditRecord.objects.get(code="AUTH.LOGIN_FAILED", actor=person.username)
    assert failed.reason == "no_role"


def test_an_identity_without_a_role_gets_no_account(provider: OpenIdStub) -> None:
    provider.claims["groups"] = ["elsewhere"]
    assert go(Client(), provider).status_code == 403
    assert not SingleSignOn.objects.filter(subject=provider.claims["sub"]).exists()


def test_an_address_or_a_name_matches_no_account(
    provider: OpenIdStub, organization: Organization
) -> None:
    chief = factories.superuser(organization)
    User.objects.filter(pk=chief.pk).update(email="chief@example.com")
    provider.claims |= {"email": "chief@example.com", "email_verified": True}
    provider.claims["preferred_username"] = chief.username.upper()
    go(Client(), provider)
    made = linked_user(provider)
    assert made != chief and made.username.startswith(f"{chief.username.upper()}-")
    assert not made.is_superuser


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("nonce", "another"),
        ("nonce", None),
        ("aud", "another client"),
        ("aud", ["another client"]),
        ("iss", "https://evil.example"),
        ("exp", 1),
        ("azp", "another client"),
        ("sub", ""),
        ("sub", 7),
        ("sub", "x" * 300),
        ("auth_time", "yesterday"),
    ],
)
def test_an_id_token_with_other_claims_is_refused(
    provider: OpenIdStub, claim: str, value: object
) -> None:
    provider.token[claim] = value
    client = Client()
    page = go(client, provider)
    assert page.status_code == 403 and notes(page)["refused"] != [NO_ROLE]
    assert not is_in(client)


def test_an_id_token_that_another_key_signed_is_refused(provider: OpenIdStub) -> None:
    provider.signs_with = rsa_key("two")
    assert go(Client(), provider).status_code == 403


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_only_signatures_of_two_keys_are_read(provider: OpenIdStub, algorithm: str) -> None:
    provider.metadata["id_token_signing_alg_values_supported"] = [algorithm]
    page = Client().get(BEGIN)
    assert page.status_code == 503 and "refused" in notes(page)


def test_another_issuer_than_that_of_the_settings_is_not_believed(provider: OpenIdStub) -> None:
    provider.metadata["issuer"] = "https://evil.example"
    assert Client().get(BEGIN).status_code == 503


def test_an_answer_is_good_once_and_in_the_browser_that_began(provider: OpenIdStub) -> None:
    client = Client()
    back = provider.consent(client.get(BEGIN)["Location"])
    assert Client().get(back).status_code == 403
    assert client.get(back).status_code == 302
    client.post("/logout/")
    assert client.get(back).status_code == 403


@pytest.mark.parametrize(
    "query", ["", "?code=x", "?state=x&code=y", "?error=access_denied&state=x"]
)
def test_an_answer_without_a_request_is_refused(provider: OpenIdStub, query: str) -> None:
    assert Client().get(f"{BACK}{query}").status_code == 403


def test_an_unreachable_provider_is_reported(provider: OpenIdStub, settings) -> None:
    settings.OIDC_ISSUER = "http://127.0.0.1:9"
    page = Client().get(BEGIN)
    assert page.status_code == 503 and "Example ID" in notes(page)["single-sign-on"][0]


def test_the_button_is_there_where_it_is_set_up_alone(provider: OpenIdStub, settings) -> None:
    page = Client().get("/login/?next=/usage/")
    assert "Example ID" in notes(page)["single-sign-on"][0] and "next=/usage/" in text(page)
    assert inline_code(page) == []
    settings.OIDC_ISSUER = ""
    assert "single-sign-on" not in notes(Client().get("/login/"))
    assert Client().get(BEGIN)["Location"] == "/login/"
    assert Client().get(BACK)["Location"] == "/login/"


def test_a_closed_account_stays_out(provider: OpenIdStub) -> None:
    go(Client(), provider)
    User.objects.filter(pk=linked_user(provider).pk).update(is_active=False)
    client = Client()
    page = go(client, provider)
    assert page.status_code == 403 and "refused" in notes(page)
    assert not is_in(client)
    failed = AuditRecord.objects.get(code="AUTH.LOGIN_FAILED", actor=linked_user(provider).username)
    assert failed.reason == "account_inactive"


def test_the_second_factor_is_ours_to_ask_where_the_provider_did_not(
    provider: OpenIdStub, settings
) -> None:
    go(Client(), provider)
    with_app(linked_user(provider))
    client = Client()
    assert go(client, provider)["Location"] == "/login/second/"
    assert not is_in(client)
    settings.OIDC_MFA = ["mfa"]
    assert go(client, provider)["Location"] == "/login/second/"
    provider.token["amr"] = ["pwd", "mfa"]
    assert go(client, provider)["Location"] == "/home/"


def test_what_the_provider_asked_counts_for_the_policy(provider: OpenIdStub, settings) -> None:
    settings.MFA_REQUIRED, settings.OIDC_MFA = "everybody", ["*"]
    client = Client()
    go(client, provider)
    assert client.get("/home/").status_code == 200


def test_groups_may_stand_in_userinfo(provider: OpenIdStub) -> None:
    del provider.claims["groups"]
    provider.userinfo["groups"] = ["staff"]
    go(Client(), provider)
    assert roles_of(linked_user(provider)) == ["role:approver", "role:viewer"]


def test_userinfo_of_another_subject_is_refused(provider: OpenIdStub) -> None:
    del provider.claims["groups"]
    provider.userinfo |= {"groups": ["admins"], "sub": "somebody else"}
    assert go(Client(), provider).status_code == 403


def connected(provider: OpenIdStub, person: User) -> Client:
    client = password(person)
    page = client.post("/profile/sso/connect")
    assert "127.0.0.1" in notes(page)["go-to"][0]
    client.get(provider.consent(_link(page)))
    return client


def _link(page) -> str:
    found = re.search(r'href="(http://127[^"]+/authorize[^"]*)"', text(page))
    assert found
    return html.unescape(found[1])


def test_a_person_connects_their_account_and_comes_in_by_either(
    provider: OpenIdStub, person: User
) -> None:
    client = connected(provider, person)
    assert "connected" in notes(client.get("/profile/"))
    there = Client()
    go(there, provider)
    assert there.session["_auth_user_id"] == str(person.pk)
    client.post("/profile/sso/disconnect")
    assert not SingleSignOn.objects.filter(user=person).exists()
    codes = AuditRecord.objects.filter(actor=person.username).values_list("code", flat=True)
    assert {"AUTH.SINGLE_SIGN_ON_LINK", "AUTH.SINGLE_SIGN_ON_UNLINK"} <= {*codes}


def test_an_identity_is_one_persons(provider: OpenIdStub, person: User) -> None:
    go(Client(), provider)
    owner = linked_user(provider)
    client = connected(provider, person)
    assert codes(client.get("/profile/")) == ["identity_taken"]
    assert linked_user(provider) == owner


def test_who_has_no_password_does_not_disconnect(provider: OpenIdStub) -> None:
    client = Client()
    go(client, provider)
    assert client.post("/profile/sso/disconnect").status_code == 409


def test_the_provider_is_proof_when_it_authenticated_again(
    provider: OpenIdStub, person: User
) -> None:
    client = connected(provider, person)
    session = client.session
    session["authenticated_at"] = 1
    session.save()
    page = client.post("/profile/tokens", {"label": "x"})
    assert "Example ID" in notes(page)["continue-with"][0]
    go(client, provider, again="1", next="/profile/")
    assert (provider.asked[-1]["prompt"], provider.asked[-1]["max_age"]) == ("login", "0")
    assert time.time() - client.session["authenticated_at"] < 60


@pytest.mark.parametrize("wrong", ["old", "another"])
def test_the_provider_is_no_proof_when_it_did_not(
    provider: OpenIdStub, person: User, wrong: str
) -> None:
    client = connected(provider, person)
    session = client.session
    session["authenticated_at"] = 1
    session.save()
    if wrong == "old":
        provider.token["auth_time"] = int(time.time()) - 3600
    else:
        provider.claims["sub"] = "somebody else"
    go(client, provider, again="1")
    assert client.session["authenticated_at"] == 1


def test_the_address_a_browser_is_sent_to_holds_no_secret(provider: OpenIdStub) -> None:
    asked = dict(parse_qsl(urlsplit(Client().get(BEGIN)["Location"]).query))
    assert set(asked) == {
        "client_id", "code_challenge", "code_challenge_method", "nonce", "redirect_uri",
        "response_type", "scope", "state",
    }  # fmt: skip


def test_a_login_is_as_fresh_as_what_the_provider_asked_for(provider: OpenIdStub) -> None:
    provider.token["auth_time"] = int(time.time()) - 3600
    client = Client()
    go(client, provider)
    assert "continue-with" in notes(client.post("/profile/tokens", {"label": "x"}))
    assert SingleSignOn.objects.filter(subject=provider.claims["sub"]).exists()
