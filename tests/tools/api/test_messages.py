"""Channels, messages and the inbox over the API."""

import json
import time

import pytest

from audit.alerts.alert_channels import signature
from audit.events import Event
from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tools.errors import NotFound
from tools.messaging import message_channels
from tools.models import InboxItem, Message

pytestmark = pytest.mark.django_db
HOOK = {"name": "hook", "kind": "webhook", "url": "https://hooks.example/T0KEN"}


@pytest.fixture
def api(admin_user):
    return Api(factories.token(admin_user, scopes=["read", "execute", "manage"]))


@pytest.fixture
def sent(organization):
    """A message that an email channel has sent, and the channel's key."""
    mail = {
        "name": "post", "kind": "email", "host": "mail.example", "sender": "crib@example.com",
        "recipients": ["@example.com"],
    }  # fmt: skip
    row, key = message_channels.create_channel(
        organization=organization, channel=mail, by=factories.actor(organization)
    )
    message = Message.objects.create(
        organization=organization, channel=row, channel_name=row.name, kind=row.kind,
        recipients=["ada@example.com"], state="sent",
    )  # fmt: skip
    return message, key


def reported(client, message, key, *, at=None, **body):
    body = json.dumps({"message_id": str(message.pk)} | body).encode()
    return client.post(
        f"/api/v1/channels/{message.channel_id}/bounces",
        body,
        content_type="application/json",
        headers={"Toolcrib-Signature": signature(key.encode(), int(at or time.time()), body)},
    )


def test_a_channels_secrets_come_back_to_no_user_but_its_key_once(api):
    made = api.post("/channels", HOOK)
    assert made.status_code == 201 and made.json()["signing_key"].startswith("whsec_")
    answer = api.get("/channels/hook")
    assert answer.json()["url"] == "https://hooks.example/…"
    assert "T0KEN" not in answer.content.decode() and "signing_key" not in answer.json()
    assert api.patch("/channels/hook", {"enabled": False}).json()["enabled"] is False
    assert api.post("/channels/hook/key").json().keys() == {"signing_key"}
    assert api.delete("/channels/hook").status_code == 204


def test_a_channel_that_was_removed_meanwhile_is_not_found(organization):
    by = factories.actor(organization)
    row, _ = message_channels.create_channel(organization=organization, channel=HOOK, by=by)
    message_channels.delete_channel(row=message_channels.find_channel(organization, "hook"), by=by)
    for late in (
        lambda: message_channels.change_channel(row=row, changes={"enabled": False}, by=by),
        lambda: message_channels.replace_key(row=row, by=by),
        lambda: message_channels.delete_channel(row=row, by=by),
    ):
        with pytest.raises(NotFound, match="There is no channel"):
            late()
    answer = AuditRecord.objects.filter(organization=organization.slug, subject="hook")
    assert sorted(answer.values_list("code", flat=True)) == [
        Event.CHANNEL_CREATE.value, Event.CHANNEL_DELETE.value,
    ]  # fmt: skip


def test_a_name_is_taken_once(api):
    api.post("/channels", HOOK)
    assert api.post("/channels", HOOK).status_code == 409


@pytest.mark.parametrize("body", [[], "x", {"name": 1}, HOOK | {"kind": []}])
def test_what_is_no_channel_is_refused(api, body):
    assert api.post("/channels", body).status_code == 400


def test_a_test_is_a_message_in_an_inbox(api, admin_user):
    desk = {"name": "desk", "kind": "inbox", "recipients": [admin_user.username]}
    api.post("/channels", desk)
    tried = api.post("/channels/desk/test", {"to": [admin_user.username]})
    assert (tried.status_code, tried.json()["state"]) == (200, "sent")
    (item,) = api.get("/inbox?unread=true").json()["results"]
    assert item["subject"] == "A test from Toolcrib" and item["read_at"] is None
    assert api.post(f"/inbox/{item['id']}/read").json()["read_at"]
    assert api.get("/inbox?unread=true").json()["results"] == []


def test_a_test_to_whom_the_channel_does_not_allow_is_refused(api):
    api.post("/channels", {"name": "desk", "kind": "inbox"})
    refused = api.post("/channels/desk/test", {"to": ["eve"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "recipient_not_allowed")


def test_no_user_reads_anothers_inbox(api, organization, sent):
    eve = factories.person(organization)
    item = InboxItem.objects.create(message=sent[0], user=eve)
    assert api.get("/inbox").json()["results"] == []
    assert api.post(f"/inbox/{item.pk}/read").status_code == 404


def test_a_signed_report_makes_a_bounce_that_is_seen(api, client, sent):
    message, key = sent
    for _ in range(2):
        answer = reported(client, message, key, recipient="ada@example.com", reason="gone")
        assert answer.status_code == 204
    (found,) = api.get("/messages?state=bounced&channel=post").json()["results"]
    assert found["refused"] == {"ada@example.com": "gone"}
    assert api.get(f"/messages/{message.pk}").json()["state"] == "bounced"


def test_a_report_that_is_not_signed_now_with_the_key_changes_nothing(client, sent):
    message, key = sent
    assert reported(client, message, "whsec_other").status_code == 401
    assert reported(client, message, key, at=time.time() - 3600).status_code == 401
    message.refresh_from_db()
    assert message.state == "sent"


def test_a_report_about_another_user_is_not_found(client, sent):
    message, key = sent
    assert reported(client, message, key, recipient="eve@example.com").status_code == 404


def test_a_state_no_user_knows_is_refused(api):
    assert api.get("/messages?state=lost").status_code == 400
