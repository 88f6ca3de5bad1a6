"""Celery tasks of evidence, scheduled by beat."""

from celery import shared_task
from django.conf import settings

from audit.alerts import alerts, deliveries
from audit.export import background_exports
from audit.log import checkpoint_retention, silence
from audit.records import retention
from audit.verification import selfcheck


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


@shared_task(name="audit.tasks.thin_checkpoints")
def thin_checkpoints() -> None:
    checkpoint_retention.thin_all_logs()


@shared_task(name="audit.tasks.watch_sealer")
def watch_sealer() -> None:
    silence.record_sealer_silence()


@shared_task(name="audit.tasks.verify_logs")
def verify_logs() -> None:
    selfcheck.verify_all_logs()


@shared_task(name="audit.tasks.write_export", time_limit=3600)
def write_export() -> None:
    background_exports.write_next_export()


@shared_task(name="audit.tasks.sweep_exports")
def sweep_exports() -> None:
    background_exports.delete_expired()
