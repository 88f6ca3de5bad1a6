"""`/profile/`: the user's name, tokens, browsers and password."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.sessions.models import Session as BrowserSession
from django.test import Client
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.ui.pages import inline_code, notes, text
from tools.accounts.login import lockout
from tools.accounts.roles import role_of
from tools.models import Agent, Organization, PersonSession, Token, User
from tools.ui.accounts.profile import VERBS, browser_name

OLD, NEW = "correct horse", "a good long one 7"
CHANGE = {"old_password": OLD, "new_password1": NEW, "new_password2": NEW}
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
EDGE = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0"
)


def enter(person: User, agent: str = FIREFOX, address: str = "10.2.0.1") -> Client:
    client = Client(headers={"User-Agent": agent}, REMOTE_ADDR=address)
    data = {"username": person.username, "password": OLD}
    assert client.post("/login/", data).status_code == 302
    return client


def row_of(client: Client) -> PersonSession:
    return PersonSession.objects.get(session_id=client.session.session_key)


def is_in(client: Client) -> bool:
    return client.get("/profile/").status_code == 200


def test_a_person_reads_who_they_are_and_what_they_may_in_words(client_of, person: User) -> None:
    person.groups.add(Group.objects.get(name="role:approver"))
    page = text(client_of("tools.change_agent").get("/profile/"))
    assert person.username in page
    assert role_of("role:approver").says in notes(page)["role"]
    may = dict(zip(notes(page)["may"], notes(page)["may-with"], strict=True))
    decides = Permission.objects.get(codename="decide_confirmation")
    assert decides.name.removeprefix("Can ").capitalize() in may
    assert may[VERBS["change"].capitalize()] == Agent._meta.verbose_name_plural


def test_every_page_leads_to_ones_profile(client_of) -> None:
    assert '<a class="title-link" href="/profile/"' in text(client_of().get("/"))


def test_a_user_without_a_role_sees_who_grants_one(client_of) -> None:
    assert "no-role" in notes(client_of().get("/profile/"))


def test_a_token_is_shown_once_and_works(client_of, person: User) -> None:
    client = client_of()
    data = {"label": "laptop", "days": "7", "scope": ["read"]}
    page = client.post("/profile/tokens", data, follow=True)
    shown = re.search(r"tcr_\w{8}_\w{49}", text(page))
    assert shown and "no-store" in page["Cache-Control"]
    token = Token.objects.get(user=person)
    assert (token.label, token.scopes) == ("laptop", ["read"])
    assert timedelta(days=6) < token.expires_at - timezone.now() <= timedelta(days=7)
    assert Api(shown[0]).get("/tools").status_code == 200
    [(address, _)] = page.redirect_chain
    for again in (text(client.get(one)) for one in ("/profile/", address)):
        assert "laptop" in again and shown[0] not in again
    assert AuditRecord.objects.filter(code="TOKEN.CREATE", actor=person.username).count() == 1


@pytest.mark.parametrize(
    ("wrong", "note"),
    [
        ({"label": ""}, "flaw-label"),
        ({"label": "x" * 101}, "flaw-label"),
        ({"days": "0"}, "flaw-days"),
        ({"days": "366"}, "flaw-days"),
        ({"days": "²"}, "flaw-days"),
        ({"scope": []}, "flaw-scope"),
        ({"scope": ["everything"]}, "flaw-scope"),
    ],
)
def test_a_token_that_cannot_be_made_is_explained(
    client_of, person: User, wrong: dict, note: str
) -> None:
    good = {"label": "laptop", "days": "7", "scope": ["read"]}
    page = client_of().post("/profile/tokens", good | wrong)
    assert page.status_code == 400 and note in notes(page)
    assert not Token.objects.filter(user=person).exists()


def test_a_token_is_revoked_by_its_owner_alone(
    client_of, person: User, organization: Organization
) -> None:
    mine, theirs = factories.token(person), factories.token(factories.superuser(organization))
    client = client_of()
    for row in Token.objects.filter(user__organization=organization).exclude(user=person):
        assert client.post(f"/profile/tokens/{row.pk}/revoke").status_code == 404
    own = Token.objects.get(user=person)
    assert client.post(f"/profile/tokens/{own.pk}/revoke")["Location"] == "/profile/"
    assert Api(mine).get("/tools").status_code == 401
    assert Api(theirs).get("/tools").status_code == 200


def test_browsers_are_listed_with_this_one_marked(person: User) -> None:
    here, there = enter(person), enter(person, EDGE, "10.2.0.2")
    page = text(here.get("/profile/"))
    assert "Edge on Windows" in page and "10.2.0.2" in page
    first, second = page.index("Firefox on Linux"), page.index("Edge on Windows")
    assert first < page.index('data-note="this-browser"') < second  # the one at hand stands first
    for client in (here, there):
        assert client.session.session_key not in page


def test_another_browser_is_logged_out_at_once(person: User) -> None:
    here, there = enter(person), enter(person, EDGE)
    here.post(f"/profile/sessions/{row_of(there).pk}/end")
    assert (is_in(here), is_in(there)) == (True, False)
    record = AuditRecord.objects.get(code="AUTH.SESSIONS_END", actor=person.username)
    assert record.details["sessions"] == 1


def test_this_browser_is_logged_out_to_the_login_page(person: User) -> None:
    here = enter(person)
    assert here.post(f"/profile/sessions/{row_of(here).pk}/end")["Location"] == "/login/"
    assert not is_in(here)


def test_all_other_browsers_of_the_user_are_logged_out(
    person: User, organization: Organization
) -> None:
    here, others = enter(person), [enter(person, EDGE) for _ in range(3)]
    stranger = enter(factories.person(organization, password=OLD))
    page = here.post("/profile/sessions/end", follow=True)
    assert "3" in notes(page)["message-success"][0]
    assert [is_in(one) for one in (here, *others, stranger)] == [True, False, False, False, True]


def test_a_session_of_another_user_cannot_be_ended(
    person: User, organization: Organization
) -> None:
    here, stranger = enter(person), enter(factories.superuser(organization))
    assert here.post(f"/profile/sessions/{row_of(stranger).pk}/end").status_code == 404
    assert here.post(f"/profile/sessions/{uuid4()}/end").status_code == 404
    assert is_in(stranger)


def test_what_is_noted_of_a_session_goes_with_it(person: User) -> None:
    client = enter(person)
    client.post("/logout/")
    assert not PersonSession.objects.filter(user=person).exists()
    key = enter(person).session.session_key
    BrowserSession.objects.filter(pk=key).update(expire_date=timezone.now() - timedelta(days=1))
    BrowserSession.get_session_store_class().clear_expired()
    assert not PersonSession.objects.filter(user=person).exists()


def test_a_session_from_before_is_listed_from_its_first_look_on(person: User) -> None:
    client = enter(person)
    PersonSession.objects.filter(user=person).delete()
    assert "this-browser" in notes(client.get("/profile/"))


def test_a_password_is_changed_and_other_browsers_are_out(person: User) -> None:
    here, there = enter(person), enter(person, EDGE)
    assert here.post("/profile/password/", CHANGE)["Location"] == "/profile/"
    person.refresh_from_db()
    assert person.check_password(NEW)
    assert (is_in(here), is_in(there)) == (True, False)
    assert PersonSession.objects.filter(user=person).count() == 1
    record = AuditRecord.objects.filter(code="ADMIN.ROW_CHANGE", actor=person.username).get()
    assert record.details["change"] == "own password"
    assert NEW not in str(vars(record))


@pytest.mark.parametrize(
    ("wrong", "field", "code"),
    [
        ({"old_password": "wrong"}, "old_password", "password_incorrect"),
        ({"new_password2": "another"}, "new_password2", "password_mismatch"),
        (
            {"new_password1": "password", "new_password2": "password"},
            "new_password2",
            "password_too_common",
        ),
        ({"new_password1": "7", "new_password2": "7"}, "new_password2", "password_too_short"),
    ],
)
def test_a_password_that_will_not_do_is_explained(
    client_of, person: User, wrong: dict, field: str, code: str
) -> None:
    page = client_of().post("/profile/password/", CHANGE | wrong)
    assert page.status_code == 400
    flaws = page.context["form"].errors.as_data()[field]
    assert code in [one.code for one in flaws]
    assert len(notes(page)[f"flaw-{field}"]) == len(flaws)
    person.refresh_from_db()
    assert person.check_password(OLD)


def test_guesses_of_the_old_password_are_counted_as_at_the_login(client_of, person: User) -> None:
    client = client_of()
    client.defaults["REMOTE_ADDR"] = "10.3.0.3"
    for _ in range(lockout.PAIR_LIMIT.most):
        client.post("/profile/password/", CHANGE | {"old_password": "wrong"})
    page = client.post("/profile/password/", CHANGE)
    assert page.status_code == 429 and int(page["Retry-After"]) > 0
    assert "refused" in notes(page)
    person.refresh_from_db()
    assert person.check_password(OLD)


def test_the_administration_sends_to_the_same_place(admin_client: Client) -> None:
    assert admin_client.get("/admin/password_change/")["Location"] == "/profile/password/"


def test_a_password_that_another_sets_ends_every_session(
    admin_client: Client, person: User
) -> None:
    client = enter(person)
    data = {"usable_password": "true", "password1": NEW, "password2": NEW}
    address = f"/admin/tools/user/{person.pk}/password/"
    assert admin_client.post(address, data).status_code == 302
    assert not is_in(client)
    assert not PersonSession.objects.filter(user=person).exists()


def test_a_profile_asks_the_same_of_the_database_however_much_there_is(
    client_of, person: User, django_assert_max_num_queries
) -> None:
    client = client_of()
    person.groups.set(Group.objects.filter(name__startswith="role:"))
    for number in range(30):
        factories.token(person, label=f"token {number}")
        Client().force_login(person, backend="tools.accounts.login.login.PeopleBackend")
    client.get("/profile/")
    with django_assert_max_num_queries(16):
        page = client.get("/profile/")
    assert text(page).count("/revoke") >= 30 and inline_code(page) == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (FIREFOX, "Firefox on Linux"),
        (EDGE, "Edge on Windows"),
        ("curl/8.9", "curl"),
        ("", "An unknown program"),
        ("<script>", "<script>"),
    ],
)
def test_a_browser_is_named_in_two_words(said: str, shown: str) -> None:
    assert browser_name(said) == shown
