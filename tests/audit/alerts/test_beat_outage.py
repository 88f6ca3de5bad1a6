"""Alerts are raised and delivered where beat, or the Redis it needs, is silent."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from audit import tasks
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import Alert, AlertRule

pytestmark = pytest.mark.django_db


@pytest.fixture
def place():
    """Something to raise an alert for has happened there."""
    name = f"org-{uuid4().hex[:12]}"
    record(
        Event.TOOL_LOST,
        by=Actor("system", "reaper", name),
        outcome=Outcome.FAILURE,
        subject="pay",
        reason="OUTCOME_UNKNOWN",
    )
    return name


@pytest.mark.parametrize("silent_s", [31, None], ids=["silent for long", "silent since ever"])
def test_a_worker_raises_alerts_while_beat_is_silent(place, silent_s):
    looked_at = None if silent_s is None else Now() - timedelta(seconds=silent_s)
    AlertRule.objects.update(looked_at=looked_at)
    assert tasks.replace_silent_beat()
    assert Alert.objects.filter(organization=place).count() == 1


def test_a_worker_leaves_it_to_beat_which_has_just_looked(place):
    AlertRule.objects.update(looked_at=Now())
    assert not tasks.replace_silent_beat()
    assert not Alert.objects.filter(organization=place).exists()
