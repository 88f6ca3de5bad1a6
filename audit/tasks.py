"""Celery tasks of evidence, scheduled by beat, and a fallback for a silent beat.

Beat and its messages need Redis; an alert may be about the reason that Redis is unavailable.
"""

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db.models.functions import Now

from audit import partitions
from audit.alerts import alerts, deliveries
from audit.export import background_exports
from audit.log import checkpoint_retention, log_status
from audit.models import AlertRule
from audit.records import retention
from audit.verification import inspection

BEAT_CHECK_S = 15.0
_BEAT_SILENT = timedelta(seconds=30)


@shared_task(name="audit.tasks.raise_alerts")
def raise_alerts() -> None:
    alerts.raise_all_alerts()


@shared_task(name="audit.tasks.deliver_alerts")
def deliver_alerts() -> None:
    deliveries.send_due()


@shared_task(name="audit.tasks.keep_evidence")
def keep_evidence() -> None:
    retention.apply_retention(
        records_days=settings.RETENTION_DAYS["records"],
        payload_days=settings.RETENTION_DAYS["payloads"],
    )


@shared_task(name="audit.tasks.make_partitions")
def make_partitions() -> None:
    partitions.make_all_partitions()


@shared_task(name="audit.tasks.thin_checkpoints")
def thin_checkpoints() -> None:
    checkpoint_retention.thin_all_logs()


@shared_task(name="audit.tasks.watch_sealer")
def watch_sealer() -> None:
    log_status.record_sealer_silence()


@shared_task(name="audit.tasks.verify_logs")
def verify_logs() -> None:
    inspection.verify_all_logs()


@shared_task(name="audit.tasks.write_export", time_limit=3600, at_once=4)
def write_export() -> None:
    background_exports.write_next_export()


@shared_task(name="audit.tasks.sweep_exports")
def sweep_exports() -> None:
    background_exports.delete_expired()


def replace_silent_beat() -> bool:
    """Whether beat was silent, and was replaced. Many processes may do so at once."""
    if AlertRule.objects.filter(looked_at__gt=Now() - _BEAT_SILENT).exists():
        return False
    log_status.record_sealer_silence()
    alerts.raise_all_alerts()
    deliveries.send_due()
    return True
