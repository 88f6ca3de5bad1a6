"""Two workers and one alert, where transactions really commit."""

import threading

from django.db import connection

from audit.actions import Actor, record
from audit.alerts import alert_channels, alerts, deliveries
from audit.events import Event, Outcome
from audit.models import AlertDelivery
from tests.stubs.web import Held, Reply, serving


def test_two_workers_tell_it_once(ledger, settings):
    """One holds the delivery while the other looks."""
    settings.EGRESS_ALLOW_PRIVATE = ["127.0.0.0/8"]
    held = Held(Reply(204))
    with serving() as web:
        web.replies["/hook"] = held
        alert_channels.create_channel(
            organization="acme", name="hook", kind="webhook", target=web.url("/hook"),
            by=Actor("person", "eve", "acme"),
        )  # fmt: skip
        _raise_one()
        first = threading.Thread(target=_in_a_thread)
        first.start()
        web.received()
        assert deliveries.send_due() == 0
        held.let_go()
        first.join()
    assert len(web.seen) == 1
    assert AlertDelivery.objects.get().delivered_at is not None


def _in_a_thread():
    try:
        deliveries.send_due()
    finally:
        connection.close()


def _raise_one():
    record(
        Event.TOOL_LOST,
        by=Actor("system", "reaper", "acme"),
        outcome=Outcome.FAILURE,
        subject="pay",
        reason="OUTCOME_UNKNOWN",
    )
    alerts.raise_all_alerts()
