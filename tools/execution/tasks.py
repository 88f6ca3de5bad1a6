"""What Celery calls. A message carries an execution's id and nothing else."""

from uuid import UUID

from celery import shared_task

from tools.execution import cache, expiry, isolation, reaper, session_keeping
from tools.execution.pipeline import perform
from tools.policy import licenses, ratelimits


@shared_task(name="tools.execution.tasks.run_execution", time_limit=3_700)
def run_execution(execution_id: str) -> None:
    for waiting in perform(UUID(execution_id)):
        run_execution.apply_async((str(waiting),))


@shared_task(name="tools.execution.tasks.reap", time_limit=60)
def reap() -> None:
    for execution_id in reaper.reap():
        run_execution.apply_async((str(execution_id),))


@shared_task(name="tools.execution.tasks.forget_expired", time_limit=60)
def forget_expired() -> None:
    cache.forget_expired()


@shared_task(name="tools.execution.tasks.forget_rate_hits", time_limit=60)
def forget_rate_hits() -> None:
    ratelimits.forget_hits()


@shared_task(name="tools.execution.tasks.watch_confirmations", time_limit=60)
def watch_confirmations() -> None:
    expiry.watch()


@shared_task(name="tools.execution.tasks.apply_license_expiry", time_limit=600)
def apply_license_expiry() -> None:
    licenses.apply_expiry()


@shared_task(name="tools.execution.tasks.record_isolation", time_limit=60)
def record_isolation() -> None:
    isolation.record_changes()


@shared_task(name="tools.execution.tasks.keep_sessions", time_limit=60)
def keep_sessions() -> None:
    session_keeping.close_idle()
    session_keeping.count_stuck()
