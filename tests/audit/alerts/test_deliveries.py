"""An alert is delivered to the channels of its organization: at least once, and not for ever."""

import json
from datetime import timedelta
from hashlib import sha256
from hmac import new as hmac

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.alerts import alert_channels, alerts, deliveries
from audit.events import Event, Outcome
from audit.models import Alert, AlertChannel, AlertDelivery, AlertRule, AuditRecord
from tests.stubs.mail import open_office
from tests.stubs.web import Held, Reply, serving
from tools.httpclient import outbound

pytestmark = pytest.mark.django_db


@pytest.fixture
def web(settings):
    settings.EGRESS_ALLOW_PRIVATE = ["127.0.0.0/8"]
    with serving() as web:
        web.replies["/hook"] = Reply(204)
        yield web


@pytest.fixture
def office(settings):
    with open_office() as office:
        settings.EMAIL_OPTIONS = office.options
        yield office


@pytest.fixture
def hook(place, actor, web):
    """A webhook and what it is signed with."""
    return alert_channels.create_channel(
        organization=place, name="hook", kind="webhook", target=web.url("/hook"), by=actor
    )


@pytest.fixture
def mailbox(place, actor, office):
    return alert_channels.create_channel(
        organization=place, name="mail", kind="email", target="eve@example.com", by=actor
    )[0]


def raised(place, *, lost="pay"):
    """A critical alert."""
    record(
        Event.TOOL_LOST,
        by=Actor("system", "reaper", place),
        outcome=Outcome.FAILURE,
        subject=lost,
        reason="OUTCOME_UNKNOWN",
    )
    AlertRule.objects.update(looked_at=None)  # however recently it was evaluated
    alerts.raise_all_alerts()
    return Alert.objects.get(organization=place, subject=lost)


def delivery_of(place):
    return AlertDelivery.objects.get(alert__organization=place)


def due_again(place):
    AlertDelivery.objects.filter(alert__organization=place).update(due_at=timezone.now())


def a_day_later(place):
    then = Now() - timedelta(hours=25)
    Alert.objects.filter(organization=place).update(first_at=then, last_at=then)


def test_a_webhook_gets_the_alert_with_a_signature_over_time_and_body(place, hook, web):
    alert = raised(place)
    deliveries.send_due()
    (seen,) = web.seen
    timestamp, _, signed = seen.headers["toolcrib-signature"].removeprefix("t=").partition(",v1=")
    assert (
        signed == hmac(hook[1].encode(), f"{timestamp}.".encode() + seen.body, sha256).hexdigest()
    )
    assert json.loads(seen.body)["alert"]["id"] == str(alert.pk)
    assert seen.headers["toolcrib-delivery"] == json.loads(seen.body)["delivery"]


def test_a_person_gets_it_by_mail(place, mailbox, office):
    alert = raised(place)
    deliveries.send_due()
    (letter,) = office.letters
    assert letter.recipients == ["eve@example.com"] and alert.message in letter.mail.get_content()


def test_a_delivered_alert_is_not_sent_again(place, hook, web):
    raised(place)
    deliveries.send_due()
    due_again(place)
    alerts.raise_all_alerts()
    deliveries.send_due()
    assert len(web.seen) == 1
    assert delivery_of(place).delivered_at is not None


def test_a_channel_gets_no_alert_below_its_severity_or_while_disabled(place, hook, mailbox, actor):
    alert_channels.change_channel(channel=hook[0], by=actor, enabled=False)
    alert_channels.change_channel(channel=mailbox, by=actor, least="critical")
    alert = Alert(organization=place, rule="x", severity="warning", actor="ada", message="m")
    alert.count, alert.first_at, alert.last_at = 1, timezone.now(), timezone.now()
    alert.save()
    deliveries.plan_deliveries(alert)
    assert not alert.deliveries.exists()


def test_a_channel_gets_no_alert_of_another_organization(place, hook, web):
    raised(f"{place}-b")
    deliveries.send_due()
    assert web.seen == []


def test_a_receiver_that_fails_is_asked_again_later_and_the_problem_is_seen(place, hook, web):
    web.replies["/hook"] = Reply(500)
    raised(place)
    deliveries.send_due()
    failed = delivery_of(place)
    assert failed.problem == "The receiver answered with status 500."
    assert failed.due_at > timezone.now() + timedelta(seconds=5)
    assert list(deliveries.failures_of(place)) == [failed]


def test_a_failed_delivery_is_retried_under_the_same_id(place, hook, web):
    web.replies["/hook"] = Reply(503)
    raised(place)
    deliveries.send_due()
    web.replies["/hook"] = Reply(200)
    due_again(place)
    deliveries.send_due()
    names = {seen.headers["toolcrib-delivery"] for seen in web.seen}
    assert len(web.seen) == 2 and len(names) == 1
    assert delivery_of(place).problem == ""


def test_pauses_grow_to_an_hour():
    pauses = [deliveries.retry_delay(n) for n in (1, 2, 3, 10, 100_000)]
    assert pauses[:3] == [timedelta(seconds=s) for s in (10, 20, 40)]
    assert pauses[3:] == [timedelta(hours=1)] * 2


def test_after_a_day_it_is_given_up_and_that_is_on_record(place, hook, web):
    web.replies["/hook"] = Reply(500)
    raised(place)
    deliveries.send_due()
    a_day_later(place)
    due_again(place)
    deliveries.send_due()
    assert delivery_of(place).given_up_at is not None and len(web.seen) == 1
    delivery_record = AuditRecord.objects.get(organization=place, code="ALERT.DELIVER")
    assert delivery_record.details["problem"] == "The receiver answered with status 500."


def test_what_was_never_tried_is_not_given_up(place, hook, web):
    raised(place)
    a_day_later(place)
    deliveries.send_due()
    assert delivery_of(place).delivered_at is not None


def test_what_a_worker_dies_of_is_given_up_after_a_day(place, hook, web):
    raised(place)
    AlertDelivery.objects.filter(alert__organization=place).update(attempts=1)
    a_day_later(place)
    deliveries.send_due()
    assert delivery_of(place).given_up_at is not None and web.seen == []


def test_one_that_fails_does_not_hold_up_another(place, hook, mailbox, web, office):
    web.replies["/hook"] = Reply(500)
    for tool in ("a", "b", "c"):
        raised(place, lost=tool)
    deliveries.send_due()
    assert len(web.seen) == 1 and len(office.letters) == 3


def test_a_channel_that_fails_is_paused_with_all_that_waits_on_it(place, hook, web):
    web.replies["/hook"] = Reply(500)
    for tool in ("a", "b", "c"):
        raised(place, lost=tool)
    deliveries.send_due()
    waiting = AlertDelivery.objects.filter(alert__organization=place)
    assert waiting.filter(due_at__gt=Now() + timedelta(seconds=5)).exclude(problem="").count() == 3


def test_deliveries_that_waited_for_the_channel_are_sent_once_it_answers(place, hook, web):
    web.replies["/hook"] = Reply(500)
    for tool in ("a", "b"):
        raised(place, lost=tool)
    deliveries.send_due()
    web.replies["/hook"] = Reply(204)
    raised(place, lost="c")
    deliveries.send_due()
    delivered = AlertDelivery.objects.filter(alert__organization=place, delivered_at__isnull=False)
    assert {one.alert.subject for one in delivered} == {"b", "c"}


def test_one_alert_its_receiver_will_not_take_keeps_back_no_other(place, hook, web):
    def picky(seen):
        return Reply(400 if b'"subject":"a"' in seen.body else 204)

    web.replies["/hook"] = picky
    raised(place, lost="a")
    deliveries.send_due()
    raised(place, lost="b")
    due_again(place)
    deliveries.send_due()
    delivered = AlertDelivery.objects.get(alert__organization=place, delivered_at__isnull=False)
    assert delivered.alert.subject == "b"


def hooks(organization, web, *, count=1):
    for number in range(count):
        alert_channels.create_channel(
            organization=organization, name=f"{organization}-{number}", kind="webhook",
            target=web.url(f"/{organization}"), by=Actor("person", "eve", organization),
        )  # fmt: skip


@pytest.mark.part("faults")
def test_receivers_that_never_answer_delay_no_alert_of_another_organization(place, hook, web):
    """Each costs more than an organization's share of a round."""
    held = web.replies[f"/{place}-dead"] = Held(Reply(204))
    hooks(f"{place}-dead", web, count=10)
    raised(f"{place}-dead")
    raised(place)
    deliveries.send_due()
    held.let_go()
    assert delivery_of(place).delivered_at is not None


def test_channels_that_fail_come_after_those_that_answer(place, hook, web):
    web.replies[f"/{place}-bad"] = Reply(500)
    hooks(f"{place}-bad", web, count=5)
    raised(f"{place}-bad")
    deliveries.send_due()
    due_again(f"{place}-bad")
    raised(place)
    deliveries.send_due()
    assert [seen.target for seen in web.seen[5:]] == ["/hook"] + [f"/{place}-bad"] * 5


def test_deliveries_an_hour_are_limited_and_the_rest_are_summarized(place, hook, web, monkeypatch):
    monkeypatch.setattr(deliveries, "MOST_AN_HOUR", 2)
    for number in range(5):
        raised(place, lost=f"tool-{number}")
        deliveries.send_due()
    rules = [json.loads(seen.body)["alert"]["rule"] for seen in web.seen]
    assert rules == ["outcome_unknown", "outcome_unknown", "untold"]
    summary = Alert.objects.get(organization=place, rule="untold")
    assert (summary.count, summary.severity) == (3, "critical")


def test_a_flood_of_lesser_alerts_does_not_keep_back_a_worse_one(place, hook, web, monkeypatch):
    monkeypatch.setattr(deliveries, "MOST_AN_HOUR", 2)
    for number in range(3):
        record(
            Event.TOKEN_REFUSED,
            by=Actor("agent", f"agent-{number}", place),
            outcome=Outcome.DENIED,
        )
    raised(place)
    deliveries.send_due()
    severities = [json.loads(seen.body)["alert"]["severity"] for seen in web.seen]
    assert sorted(severities) == ["critical", "warning", "warning", "warning"]


def delivery_ids(web):
    return [seen.headers["toolcrib-delivery"] for seen in web.seen]


@pytest.mark.parametrize(("quiet_h", "times"), [(25, 2), (23, 1)])
def test_an_open_alert_is_sent_again_when_it_recurs_after_a_day(place, hook, web, quiet_h, times):
    raised(place)
    deliveries.send_due()
    then = Now() - timedelta(hours=quiet_h)
    Alert.objects.filter(organization=place).update(first_at=then, last_at=then)
    raised(place)
    deliveries.send_due()
    assert len(set(delivery_ids(web))) == times


def test_an_open_alert_is_sent_again_when_its_severity_rises(place, hook, web):
    AlertRule.objects.filter(name="outcome_unknown").update(severity="warning")
    raised(place)
    deliveries.send_due()
    AlertRule.objects.filter(name="outcome_unknown").update(severity="critical")
    alert = raised(place)
    deliveries.send_due()
    assert alert.severity == "critical" and len(set(delivery_ids(web))) == 2


def test_an_invalid_address_does_not_stop_other_deliveries(place, hook, mailbox, web, actor):
    AlertChannel.objects.filter(pk=mailbox.pk).update(target="eve\u017f@example.com")
    mailbox.refresh_from_db()
    assert (
        deliveries.send_test_message(channel=mailbox, by=actor)
        == "The address cannot be written to."
    )
    raised(place)
    assert deliveries.send_due() == 1
    assert deliveries.failures_of(place).get().channel == mailbox


def test_a_mail_server_that_refuses_is_named_with_its_code(place, mailbox, office):
    office.refusals["eve@example.com"] = "451 later"
    raised(place)
    deliveries.send_due()
    assert delivery_of(place).problem == "The mail server does not take mail for this address."


def test_without_a_mail_server_the_channel_says_so(place, mailbox, settings, actor):
    settings.EMAIL_OPTIONS = {}
    assert "EMAIL_URL" in deliveries.send_test_message(channel=mailbox, by=actor)


def test_a_trial_says_what_came_of_it_and_is_on_record(place, hook, web, actor):
    assert deliveries.send_test_message(channel=hook[0], by=actor) == ""
    web.replies["/hook"] = Reply(404)
    assert "404" in deliveries.send_test_message(channel=hook[0], by=actor)
    assert json.loads(web.seen[0].body)["type"] == "test"
    outcomes = AuditRecord.objects.filter(organization=place, code="ALERT.TEST")
    assert {one.outcome for one in outcomes} == {"success", "failure"}


@pytest.mark.parametrize(
    "target",
    [
        "https://127.0.0.1/", "https://localhost/", "https://10.0.0.1/", "https://169.254.169.254/",
        "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://0x7f.1/", "https://2130706433/",
    ],
)  # fmt: skip
def test_no_webhook_reaches_inside(place, actor, target):
    channel, _ = alert_channels.create_channel(
        organization=place, name="inside", kind="webhook", target=target, by=actor
    )
    assert deliveries.send_test_message(channel=channel, by=actor) != ""


def test_one_in_the_clear_goes_nowhere_public(place, actor, settings):
    settings.EGRESS_ALLOW_PRIVATE = ["127.0.0.0/8"]
    with pytest.raises(deliveries.DeliveryFailed, match="https alone"):
        outbound.post("http://1.1.1.1/", [], b"{}", 1, "acme")


def test_nor_where_the_operator_opened_nothing(hook, web, settings, actor):
    settings.EGRESS_ALLOW_PRIVATE = []
    assert "https alone" in deliveries.send_test_message(channel=hook[0], by=actor)
    assert web.connections == 0


def test_no_redirect_is_followed(hook, web, actor):
    web.replies["/hook"] = Reply(307, [("Location", web.url("/elsewhere"))])
    assert "307" in deliveries.send_test_message(channel=hook[0], by=actor)
    assert len(web.seen) == 1
