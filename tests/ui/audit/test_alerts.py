"""The page of alerts: channels, failed deliveries, and rules."""

from datetime import timedelta
from unittest import mock

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.actions import Actor
from audit.alerts import alert_channels, deliveries
from audit.models import Alert, AlertChannel, AlertDelivery, AlertRule, AuditRecord
from tests.stubs.mail import open_office
from tests.ui.pages import notes, text
from tools.models import Organization
from tools.web.one_time import REPEATED

HOOK = "https://hooks.example/T0KEN"


@pytest.fixture
def hook(organization: Organization):
    by = Actor("person", "eve", organization.slug)
    return alert_channels.create_channel(
        organization=organization.slug, name="ops hook", kind="webhook", target=HOOK, by=by
    )


@pytest.fixture
def alert(organization: Organization):
    now = timezone.now()
    return Alert.objects.create(
        organization=organization.slug, rule="escalation", severity="critical", actor="magpie",
        message="magpie asked for every group.", count=1, first_at=now, last_at=now,
    )  # fmt: skip


def test_it_names_the_channels_without_their_secrets(admin_client: Client, hook) -> None:
    page = text(admin_client.get("/audit/alerts/?show=channels"))
    assert "ops hook" in page and "hooks.example" in page
    assert "T0KEN" not in page and hook[1] not in page


def test_channels_are_for_who_may_see_them(client_of, hook) -> None:
    refused = client_of("audit.view_auditrecord").get("/audit/alerts/?show=channels")
    assert refused.status_code == 403 and "ops hook" not in text(refused)
    granted = client_of("audit.view_auditrecord", "audit.view_alertchannel")
    page = text(granted.get("/audit/alerts/?show=channels"))
    assert "ops hook" in page and f"/audit/alerts/channels/{hook[0].pk}/test/" not in page


def test_a_failed_delivery_is_shown_with_its_reason(admin_client: Client, hook, alert) -> None:
    AlertDelivery.objects.create(
        alert=alert, channel=hook[0], attempts=32, given_up_at=timezone.now(), problem="It is gone."
    )
    page = text(admin_client.get("/audit/alerts/"))
    assert "It is gone." in page and "given-up" in notes(page)


def test_the_worst_come_first_and_all_are_reached(admin_client: Client, alert) -> None:
    """Review 1.17: open alerts ended at a number."""
    later = alert.last_at + timedelta(hours=1)
    for number in range(27):
        Alert.objects.create(
            organization=alert.organization, rule="dead_token", severity="warning",
            actor=f"agent-{number}", message=f"agent-{number} used a dead token.", count=1,
            first_at=later, last_at=later + timedelta(minutes=number),
        )  # fmt: skip
    first = admin_client.get("/audit/alerts/").context["listing"]
    shown = [one.actor for one in first.visible_rows]
    assert shown[:3] == ["magpie", "agent-26", "agent-25"]
    rest = admin_client.get(first.next).context["listing"]
    assert len({*shown, *(one.actor for one in rest.visible_rows)}) == 28 and not rest.next


@pytest.mark.parametrize("show", ["open", "acknowledged", "channels"])
def test_a_list_of_the_page_asks_as_much_of_many_as_of_few(
    admin_client: Client, organization: Organization, django_assert_num_queries, show: str
) -> None:
    address = f"/audit/alerts/?show={show}"
    fill(organization.slug, 3)
    admin_client.get(address)
    with CaptureQueriesContext(connection) as few:
        admin_client.get(address)
    fill(organization.slug, 30)
    with django_assert_num_queries(len(few)):
        admin_client.get(address)


def fill(organization: str, count: int) -> None:
    now = timezone.now()
    for over in (None, now):
        Alert.objects.bulk_create(
            Alert(organization=organization, rule="r", severity="info", message="m", count=1,
                  actor=f"{count}-{at}", first_at=now, last_at=now, acknowledged_at=over)
            for at in range(count)
        )  # fmt: skip
    AlertChannel.objects.bulk_create(
        AlertChannel(organization=organization, name=f"{count}-{at}", kind="email",
                     target="a@example.com")
        for at in range(count)
    )  # fmt: skip


def test_a_test_says_what_came_of_it(
    admin_client: Client, organization: Organization, settings
) -> None:
    channel, _ = alert_channels.create_channel(
        organization=organization.slug, name="mail", kind="email", target="eve@example.com",
        by=Actor("person", "eve", organization.slug),
    )  # fmt: skip
    address = f"/audit/alerts/channels/{channel.pk}/test/"
    assert "EMAIL_URL" in notes(admin_client.post(address, follow=True))["message-error"][0]
    with open_office() as office:
        settings.EMAIL_OPTIONS = office.options
        assert "mail" in notes(admin_client.post(address, follow=True))["message-success"][0]
    record = AuditRecord.objects.filter(organization=organization.slug, code="ALERT.TEST").first()
    assert record is not None and record.source_ip == "127.0.0.1" and record.request_id


@pytest.mark.parametrize("views", [True, False])
def test_a_test_that_is_sent_again_by_a_reload_is_sent_once(client_of, hook, views: bool) -> None:
    """Also for a person who may change channels and view no alert."""
    client = client_of("audit.change_alertchannel", *["audit.view_auditrecord"] * views)
    sent = {"one_time_key": "a" * 22}
    address = f"/audit/alerts/channels/{hook[0].pk}/test/"
    with mock.patch.object(deliveries, "send_test_message", return_value="") as asked:
        shown = [client.post(address, sent, follow=True) for _ in range(2)]
        assert asked.call_count == 1
        client.post(address, {"one_time_key": "b" * 22})
        assert asked.call_count == 2
    assert [one.status_code for one in shown] == [200, 200]
    assert notes(shown[0])["message-success"] == ["ops hook was told."]
    assert notes(shown[1])["message-info"] == [REPEATED] and "ops hook" in text(shown[1])


def test_every_rule_is_listed(admin_client: Client) -> None:
    page = text(admin_client.get("/audit/alerts/rules/"))
    assert "unchecked" in page and "26\N{NO-BREAK SPACE}h" in page
    assert all(rule.name in page for rule in AlertRule.objects.all())
