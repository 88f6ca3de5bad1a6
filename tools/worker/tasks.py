"""Celery tasks. A message carries an execution's id and nothing else."""

import logging
from datetime import timedelta
from uuid import UUID

from celery import shared_task
from django.conf import settings

from config.database import CONNECTION_ERRORS, replace_dead_connections
from tools.accounts import idempotency
from tools.approvals import decisions
from tools.catalog.search import tool_words
from tools.execution import cache, dispatch
from tools.execution.dispatch import RUN_EXECUTION, wake_workers
from tools.licensing import licenses
from tools.limits import rate_limits
from tools.models import Execution
from tools.runners import isolation
from tools.usage import usage_rollups
from tools.worker import reaper, retention, service_listener, session_maintenance, wake_ups

log = logging.getLogger(__name__)


@shared_task(name=RUN_EXECUTION, at_once=settings.WORKER_THREADS)
def run_execution(execution_id: str) -> None:
    """A dispatch as a message: of a release before wake-ups, or of `EXECUTION_DISPATCH=celery`."""
    dispatch.dispatched.beat()
    wake_ups.perform_dispatched(UUID(execution_id))


@shared_task(name="tools.execution.tasks.reap")
def reap() -> None:
    """Without a database, or during another long pass, the next pass does the work."""
    reaper.announce_pass()
    try:
        wake_workers(reaper.reap())
    except CONNECTION_ERRORS as error:
        log.warning("no execution was reaped: %s", type(error).__name__)
        replace_dead_connections()


@shared_task(name="tools.execution.tasks.forget_expired")
def forget_expired() -> None:
    cache.delete_expired()


@shared_task(name="tools.execution.tasks.forget_rate_hits")
def forget_rate_hits() -> None:
    rate_limits.delete_old_hits()


@shared_task(name="tools.execution.tasks.watch_confirmations")
def watch_confirmations() -> None:
    decisions.expire_overdue()


@shared_task(name="tools.execution.tasks.forget_idempotency_keys")
def forget_idempotency_keys() -> None:
    Execution.objects.forget_keys(timedelta(hours=settings.IDEMPOTENCY_HOURS))
    idempotency.delete_expired_keys()


@shared_task(name="tools.execution.tasks.expire_outputs")
def expire_outputs() -> None:
    retention.expire_outputs()


@shared_task(name="tools.execution.tasks.apply_retention")
def apply_retention() -> None:
    retention.delete_expired_rows()


@shared_task(name="tools.execution.tasks.add_up_days")
def add_up_days() -> None:
    usage_rollups.aggregate_days()


@shared_task(name="tools.execution.tasks.learn_questions")
def learn_questions() -> None:
    tool_words.learn_questions()


@shared_task(name="tools.execution.tasks.apply_license_expiry")
def apply_license_expiry() -> None:
    licenses.apply_expiry()


@shared_task(name="tools.execution.tasks.record_isolation")
def record_isolation() -> None:
    isolation.record_changes()


@shared_task(name="tools.execution.tasks.keep_sessions")
def keep_sessions() -> None:
    session_maintenance.close_idle()
    session_maintenance.count_stuck()


@shared_task(name="tools.execution.tasks.hear_services")
def hear_services() -> None:
    try:
        service_listener.poll()
    except CONNECTION_ERRORS as error:
        log.warning("announcements of tool services were not read: %s", type(error).__name__)
        replace_dead_connections()
