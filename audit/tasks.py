"""What Celery beat calls."""

from celery import shared_task

from audit import alerts


@shared_task(name="audit.tasks.raise_alerts", time_limit=60)
def raise_alerts() -> None:
    alerts.raise_all()
