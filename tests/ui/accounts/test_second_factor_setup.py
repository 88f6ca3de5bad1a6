"""`/profile/factors/`: setting a second factor up, taking it away, and who must have one."""

import re

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.authenticators import SoftKey, code_of
from tests.ui.pages import inline_code, notes, text
from tests.ui.second_factors import is_in, options_on, password, with_app, with_key
from tools.models import AuthenticatorApp, Organization, RecoveryCode, SecurityKey, User

APP, KEY = "/profile/factors/app/", "/profile/factors/key/"


def secret_on(page) -> tuple[str, str]:
    """The secret of the app, and the sealed form in which the page keeps it."""
    secret = re.search(r"<pre[^>]*>([A-Z2-7 ]+)</pre>", text(page))
    kept = re.search(r'name="kept" value="([^"]+)"', text(page))
    assert secret and kept
    return secret[1].replace(" ", ""), kept[1]


def set_up(client: Client):
    secret, kept = secret_on(client.get(APP))
    return secret, client.post(APP, {"kept": kept, "code": code_of(secret)}, follow=True)


def test_an_app_is_set_up_and_its_recovery_codes_are_shown_once(client_of, person: User) -> None:
    client = client_of()
    secret, page = set_up(client)
    codes = re.findall(r"<code>([a-z0-9]{4}(?:-[a-z0-9]{4}){3})</code>", text(page))
    assert len(set(codes)) == 10 and "no-store" in page["Cache-Control"]
    profile = text(client.get("/profile/"))
    assert (notes(profile)["codes-left"], notes(profile)["most-codes"]) == (["10"], ["10"])
    assert codes[0] not in profile
    shown, _ = page.redirect_chain[-1]
    assert codes[0] not in text(client.get(shown, follow=True))
    said = AuditRecord.objects.filter(actor=person.username)
    assert {"AUTH.SECOND_FACTOR_ADD", "AUTH.RECOVERY_CODES_MAKE"} <= {one.code for one in said}
    assert not any(word in str([vars(one) for one in said]) for word in (secret, codes[0]))


def test_nothing_that_opens_stands_in_the_database_in_the_clear(client_of, person: User) -> None:
    client = client_of()
    secret, _ = set_up(client)
    stored = bytes(AuthenticatorApp.objects.get(user=person).sealed)
    assert secret.encode() not in stored
    assert all(len(code.digest) == 64 for code in RecoveryCode.objects.filter(user=person))
    assert secret not in str(dict(client.session))


def test_the_square_is_drawn_without_inline_code(client_of) -> None:
    page = client_of().get(APP)
    assert "<svg" in text(page) and inline_code(page) == []


def test_a_wrong_code_leaves_the_same_square(client_of, person: User) -> None:
    client = client_of()
    secret, kept = secret_on(client.get(APP))
    page = client.post(APP, {"kept": kept, "code": "000000"})
    assert page.status_code == 400 and "refused" in notes(page)
    assert secret_on(page)[0] == secret
    assert not AuthenticatorApp.objects.filter(user=person).exists()


def test_the_square_of_another_is_not_taken(
    client_of, person: User, organization: Organization
) -> None:
    theirs = password(factories.person(organization, password="correct horse"))
    secret, kept = secret_on(theirs.get(APP))
    page = client_of().post(APP, {"kept": kept, "code": code_of(secret)})
    assert page.status_code == 400
    assert not AuthenticatorApp.objects.filter(user=person).exists()


def test_there_is_one_app_for_a_person(client_of, person: User) -> None:
    client = client_of()
    secret, kept = secret_on(client.get(APP))
    set_up(client)
    assert client.get(APP).status_code == 409
    assert client.post(APP, {"kept": kept, "code": code_of(secret)}).status_code == 409


def test_the_first_factor_logs_every_other_browser_out(person: User) -> None:
    here, there = password(person), password(person)
    set_up(here)
    assert here.get("/profile/").status_code == 200
    assert there.get("/profile/").status_code == 302


def test_a_key_is_set_up_with_its_name(client_of, person: User) -> None:
    client = client_of()
    with_key(client, "blue")
    assert "blue" in text(client.get("/profile/"))
    record = AuditRecord.objects.get(code="AUTH.SECOND_FACTOR_ADD", actor=person.username)
    assert record.details["factor"] == "security key" and record.details["name"] == "blue"


@pytest.mark.parametrize(
    ("what", "value"),
    [("origin", "https://evil.example"), ("host", "evil.example"), ("flags", 1)],
)
def test_a_key_of_elsewhere_is_not_taken(client_of, what: str, value: object) -> None:
    client, key = client_of(), SoftKey()
    setattr(key, what, value)
    answer = key.create(options_on(client.get(KEY)))
    page = client.post(KEY, {"name": "blue", "key": answer})
    assert page.status_code == 400 and "flaw-name" in notes(page)
    assert not SecurityKey.objects.filter(name="blue").exists()


@pytest.mark.parametrize(
    ("given", "of_name"),
    [
        ({"name": "", "key": "{}"}, True),
        ({"name": "x" * 61, "key": "{}"}, True),
        ({"name": "blue", "key": ""}, False),
        ({"name": "blue", "key": "[1]"}, False),
        ({"name": "a", "key": "{" * 9000}, False),
    ],
)
def test_an_invalid_key_is_refused(client_of, given: dict, of_name: bool) -> None:
    client = client_of()
    client.get(KEY)
    page = client.post(KEY, given)
    (flaw,) = notes(page)["flaw-name"]
    assert page.status_code == 400 and ("60" in flaw) is of_name


def test_a_key_without_a_challenge_is_not_taken(client_of) -> None:
    client, key = client_of(), SoftKey()
    options = options_on(client.get(KEY))
    client.post(KEY, {"name": "blue", "key": "{}"})
    page = client.post(KEY, {"name": "blue", "key": key.create('{"challenge": "AAAA"}')})
    assert page.status_code == 400
    assert options not in text(page)  # the next one is another


def test_an_address_has_no_keys_and_says_why(client_of) -> None:
    page = client_of().get(KEY, headers={"Host": "127.0.0.1:8000"})
    assert "no-keys-at-an-address" in notes(page) and "data-options" not in text(page)


def test_a_factor_is_removed_and_its_recovery_codes_with_the_last(client_of, person: User) -> None:
    client = client_of()
    with_key(client)
    set_up(client)
    key = SecurityKey.objects.get(user=person)
    assert client.post(f"/profile/factors/keys/{key.pk}/remove").status_code == 302
    assert RecoveryCode.objects.filter(user=person).count() == 10
    client.post("/profile/factors/app/remove")
    assert not RecoveryCode.objects.filter(user=person).exists()
    codes = AuditRecord.objects.filter(code="AUTH.SECOND_FACTOR_REMOVE", actor=person.username)
    assert codes.count() == 2


def test_a_key_of_another_user_cannot_be_removed(client_of, organization: Organization) -> None:
    other = factories.person(organization, password="correct horse")
    with_key(password(other))
    key = SecurityKey.objects.get(user=other)
    assert client_of().post(f"/profile/factors/keys/{key.pk}/remove").status_code == 404
    assert client_of().post("/profile/factors/app/remove").status_code == 404


def test_new_recovery_codes_void_the_old(client_of, person: User) -> None:
    client = client_of()
    _, old = with_app(person)
    page = client.post("/profile/factors/codes", follow=True)
    assert "old-codes-void" in notes(page)
    there = password(person)
    there.post("/login/second/", {"code": old[0]})
    assert not is_in(there)


def test_without_a_factor_there_are_no_recovery_codes(client_of) -> None:
    assert client_of().post("/profile/factors/codes").status_code == 409


@pytest.fixture
def approver(person: User) -> User:
    person.groups.add(Group.objects.get(name="role:approver"))
    return person


def test_who_must_have_one_sets_it_up_before_anything_else(approver: User, settings) -> None:
    settings.MFA_REQUIRED = "privileged"
    client = password(approver)
    for place in ("/", "/home/", "/profile/", "/confirmations/", "/audit/", "/admin/"):
        assert client.get(place)["Location"] == "/profile/factors/", place
    refused = client.get("/api/v1/tools")
    assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_needed")
    part = client.get("/home/", headers={"HX-Request": "true"})
    assert part["HX-Redirect"] == "/profile/factors/"
    assert "must-have-one" in notes(client.get("/profile/factors/"))
    set_up(client)
    assert client.get("/confirmations/").status_code == 200


@pytest.mark.part("matrices", but_each=2)
@pytest.mark.parametrize(
    ("policy", "role", "must"),
    [
        ("nobody", "administrator", False),
        ("privileged", "administrator", True),
        ("privileged", "approver", True),
        ("privileged", "auditor", False),
        ("privileged", "tool-manager", False),
        ("everybody", "viewer", True),
    ],
)
def test_who_must_have_one(
    client_of, person: User, settings, policy: str, role: str, must: bool
) -> None:
    settings.MFA_REQUIRED = policy
    person.groups.add(Group.objects.get(name=f"role:{role}"))
    assert (client_of().get("/").status_code == 302) is must


def test_a_superuser_must_have_one(admin_client: Client, settings) -> None:
    settings.MFA_REQUIRED = "privileged"
    assert admin_client.get("/admin/")["Location"] == "/profile/factors/"


def test_who_must_have_one_does_not_remove_the_last(approver: User, settings) -> None:
    settings.MFA_REQUIRED = "privileged"
    client = password(approver)
    set_up(client)
    page = client.post("/profile/factors/app/remove")
    assert page.status_code == 409 and "refused" in notes(page)
    assert AuthenticatorApp.objects.filter(user=approver).exists()


def test_a_session_that_has_not_proven_it_is_asked(approver: User, settings) -> None:
    client = password(approver)
    with_app(approver)
    settings.MFA_REQUIRED = "privileged"
    assert client.get("/")["Location"] == "/login/"
    assert not is_in(client)


def test_home_says_when_no_user_must_have_a_factor(admin_client: Client) -> None:
    assert any("MFA_REQUIRED" in line for line in notes(admin_client.get("/home/"))["house-look"])
