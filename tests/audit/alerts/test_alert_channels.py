"""Notification channels of alerts: created by a person, stored without secrets in the clear."""

from uuid import uuid4

import pytest

from audit.alerts import alert_channels
from audit.errors import AuditFlaw
from audit.models import AlertChannel, AuditRecord

pytestmark = pytest.mark.django_db
HOOK = "https://hooks.example/T0KEN?key=s3cret"


@pytest.fixture
def hook(place, actor):
    return alert_channels.create_channel(
        organization=place, name="ops", kind="webhook", target=HOOK, by=actor
    )


def test_a_webhooks_secret_is_known_once_and_kept_sealed(hook):
    channel, secret = hook
    kept = AlertChannel.objects.get(pk=channel.pk)
    assert secret.encode() not in bytes(kept.secret)
    assert alert_channels.signing_key(kept).decode() == secret


def test_a_secret_opens_in_its_own_row_alone(hook, place, actor):
    other, _ = alert_channels.create_channel(
        organization=place, name="copy", kind="webhook", target=HOOK, by=actor
    )
    other.secret = hook[0].secret
    with pytest.raises(LookupError):
        alert_channels.signing_key(other)


def test_a_replaced_secret_is_another_one(hook, actor):
    channel, secret = hook
    assert alert_channels.replace_secret(channel=channel, by=actor) != secret


def test_evidence_names_the_host_and_no_secret(hook, place, actor):
    channel, secret = hook
    alert_channels.change_channel(
        channel=channel, by=actor, target=f"{HOOK}&more=1", least="critical"
    )
    alert_channels.replace_secret(channel=channel, by=actor)
    alert_channels.remove_channel(channel=channel, by=actor)
    details = str(list(AuditRecord.objects.filter(organization=place).values_list("details")))
    assert "hooks.example" in details and "critical" in details
    assert "s3cret" not in details and "T0KEN" not in details and secret not in details


NO_ADDRESSES = {
    "webhook": (
        "http//x", "ftp://x.example/", "https://", "https://eve:pw@x.example/", "javascript:1",
        "https://x.example/ y", "https://x.example:99999/", "https://é.example/", "", "https://[::1",
        "https://x.example/\r\nHost: y", "https://x.example/#part",
    ),
    "email": (
        "eve", "eve@x.example, bob@x.example", "e\n@x.example", "",
        "eve\u017f@x.example", "eve@xn--\u00e4.com", f"e@{'\u00e4' * 62}.com",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "target"), [(kind, one) for kind, targets in NO_ADDRESSES.items() for one in targets]
)
def test_what_is_no_address_of_its_kind_is_refused(place, actor, kind, target):
    with pytest.raises(AuditFlaw):
        alert_channels.create_channel(
            organization=place, name="bad", kind=kind, target=target, by=actor
        )


def test_names_are_taken_once(hook, place, actor):
    with pytest.raises(AuditFlaw):
        alert_channels.create_channel(
            organization=place, name="ops", kind="webhook", target=HOOK, by=actor
        )


def test_the_number_of_channels_is_limited(place, actor):
    def another():
        return alert_channels.create_channel(
            organization=place, name=uuid4().hex, kind="webhook", target=HOOK, by=actor
        )

    for _ in range(alert_channels.MOST_CHANNELS):
        another()
    with pytest.raises(AuditFlaw):
        another()
