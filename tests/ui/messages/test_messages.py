"""Pages of messages: what was sent, where to, and a person's own inbox."""

from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes, text
from tools.messaging import message_channels
from tools.models import InboxItem, Message, MessageChannel, Organization, User

HOSTILE = "<script>alert(1)</script>\u202e"


def channel(organization: Organization, **fields: Any) -> MessageChannel:
    said = {"name": "desk", "kind": "inbox"} | fields
    by = factories.actor(organization)
    return message_channels.create_channel(organization=organization, channel=said, by=by)[0]


def letter(to: User, **fields: Any) -> InboxItem:
    said = {"channel_name": "desk", "kind": "inbox", "sender": "agent:a", "state": "sent"} | fields
    message = Message.objects.create(organization=to.organization, **said)
    return InboxItem.objects.create(message=message, user=to)


def test_a_person_reads_and_marks_what_is_theirs(client_of: Grant, person: User) -> None:
    client = client_of()
    item = letter(person, subject="Orders", body="Two came.\nOne is late.")
    page = text(client.get("/inbox/"))
    assert "Orders" in page and "One is late." in page
    marks = f'action="/inbox/{item.pk}/read"'
    assert marks in page
    assert marks not in text(client.post(f"/inbox/{item.pk}/read", follow=True))
    item.refresh_from_db()
    assert item.read_at is not None


def test_another_persons_letter_is_neither_shown_nor_marked(
    client_of: Grant, organization: Organization
) -> None:
    item = letter(factories.person(organization), subject="Theirs", body="x")
    client = client_of()
    assert "Theirs" not in text(client.get("/inbox/"))
    assert client.post(f"/inbox/{item.pk}/read").status_code == 404
    item.refresh_from_db()
    assert item.read_at is None


def test_a_test_goes_to_whom_the_form_names(
    admin_client: Client, organization: Organization, person: User
) -> None:
    channel(organization, recipients=[person.username])
    page = admin_client.post("/channels/desk/try", {"to": person.username}, follow=True)
    assert "desk" in notes(page)["message-success"][0] and person.inbox.count() == 1
    page = admin_client.post("/channels/desk/try", {"to": "mallory"}, follow=True)
    assert "mallory" in notes(page)["message-error"][0]


@pytest.mark.parametrize("to", ["", "a" * 5000, "\ud800", "x, y, z"])
def test_odd_recipients_of_a_test_are_refused(
    admin_client: Client, organization: Organization, to: str
) -> None:
    channel(organization)
    to = to.encode("utf-8", "replace").decode()
    assert admin_client.post("/channels/desk/try", {"to": to}).status_code == 302
    assert not organization.messages.exists()


def test_what_was_sent_is_listed_by_state(admin_client: Client, admin_user: User) -> None:
    letter(admin_user, subject="Fine", body="x")
    letter(admin_user, subject="Lost", body="x", state="bounced", refused={"eve@x.org": "550"})
    page = text(admin_client.get("/messages/?state=bounced"))
    assert "Lost" in page and "eve@x.org: 550" in page and "Fine" not in page
    assert "Fine" in text(admin_client.get("/messages/?state=nonsense"))


def test_hostile_words_run_nowhere_and_hide_nothing(
    admin_client: Client, admin_user: User, organization: Organization
) -> None:
    letter(admin_user, subject=HOSTILE, body=HOSTILE, answer=HOSTILE, sender=HOSTILE)
    channel(organization)
    for place in ("/inbox/", "/messages/", "/channels/"):
        page = admin_client.get(place)
        assert inline_code(page) == [] and "<script>alert" not in text(page)
    assert text(admin_client.get("/inbox/")).count("U+202E") == 2


MAIL = {
    "name": "post", "host": "mail.example.com", "port": "", "security": "starttls",
    "username": "crib", "password": "swordfish", "sender": "crib@example.com",
    "recipients": "ada@example.com, @example.org", "most_recipients": "5", "most_an_hour": "60",
    "subject_template": "{{ subject }}", "body_template": "{{ body }}", "enabled": "yes",
}  # fmt: skip


def test_an_inbox_is_created_without_a_key(admin_client: Client) -> None:
    wanted = {"name": "team", "recipients": "admin", "enabled": "yes"}
    made = text(admin_client.post("/channels/new/?kind=inbox", wanted, follow=True))
    assert "team" in notes(made)["message-success"][0] and "whsec_" not in made
    assert 'href="/channels/team/edit/"' in made


def test_a_channel_is_made_changed_given_a_key_and_removed(
    admin_client: Client, organization: Organization
) -> None:
    made = text(admin_client.post("/channels/new/?kind=email", MAIL, follow=True))
    assert "whsec_" in made and "swordfish" not in made
    row = MessageChannel.objects.get(organization=organization, name="post")
    assert row.recipients == ["ada@example.com", "@example.org"]
    assert (row.options["port"], row.most_recipients) == (587, 5)
    form = text(admin_client.get("/channels/post/edit/"))
    assert 'value="mail.example.com"' in form and "swordfish" not in form and "whsec_" not in form
    change = MAIL | {"password": "", "most_an_hour": "7", "enabled": ""}
    changed = admin_client.post("/channels/post/edit/", change, follow=True)
    assert "post" in notes(changed)["message-success"][0]
    row.refresh_from_db()
    kept = message_channels.channel_secrets(row)
    assert (row.most_an_hour, row.enabled, kept["password"]) == (7, False, "swordfish")
    shown = text(admin_client.post("/channels/post/key", follow=True))
    row.refresh_from_db()
    assert (
        message_channels.channel_secrets(row)["key"] in shown
        and message_channels.channel_secrets(row)["key"] != kept["key"]
    )
    assert "post" in notes(admin_client.get("/channels/post/remove/"))["asks-to-remove"][0]
    admin_client.post("/channels/post/remove/")
    assert not organization.message_channels.exists()


@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_an_address_is_kept_where_nothing_is_typed(
    admin_client: Client, organization: Organization, kind: str
) -> None:
    said = {"name": "hook", "url": "https://hooks.example/s3cret", "most_an_hour": "60"}
    said |= {"subject_template": "{{ subject }}", "body_template": "{{ body }}", "enabled": "yes"}
    assert "s3cret" not in text(admin_client.post(f"/channels/new/?kind={kind}", said))
    changed = said | {"url": "", "most_an_hour": "61"}
    page = admin_client.post("/channels/hook/edit/", changed, follow=True)
    assert "hook" in notes(page)["message-success"][0] and "s3cret" not in text(page)
    row = organization.message_channels.get()
    assert message_channels.channel_secrets(row)["url"] == "https://hooks.example/s3cret"


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "change",
    [
        {"host": "a b"}, {"port": "99999"}, {"port": "x"}, {"sender": "nobody"},
        {"recipients": "x"}, {"name": ""}, {"body_template": "{% for %}"}, {"security": "x"},
        {"password": ""},
    ],
)  # fmt: skip
def test_a_refused_form_keeps_what_was_typed_but_no_secret(
    admin_client: Client, organization: Organization, change: dict[str, str]
) -> None:
    answer = admin_client.post("/channels/new/?kind=email", MAIL | change)
    page = text(answer)
    [field] = change
    assert answer.status_code == 400 and {f"flaw-{field}", "refused"} <= set(notes(page))
    assert "swordfish" not in page and not organization.message_channels.exists()


def test_a_password_does_not_follow_to_another_server(
    admin_client: Client, organization: Organization
) -> None:
    admin_client.post("/channels/new/?kind=email", MAIL)
    answer = admin_client.post(
        "/channels/post/edit/", MAIL | {"password": "", "host": "evil.example"}
    )
    assert answer.status_code == 400 and "flaw-password" in notes(answer)
