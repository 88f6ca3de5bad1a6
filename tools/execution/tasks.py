"""What Celery calls. A message carries an execution's id and nothing else."""

from uuid import UUID

from celery import shared_task

from tools.execution import isolation, reaper
from tools.execution.pipeline import perform


@shared_task(name="tools.execution.tasks.run_execution", time_limit=3_700)
def run_execution(execution_id: str) -> None:
    perform(UUID(execution_id))


@shared_task(name="tools.execution.tasks.reap", time_limit=60)
def reap() -> None:
    for execution_id in reaper.reap():
        run_execution.apply_async((str(execution_id),))


@shared_task(name="tools.execution.tasks.record_isolation", time_limit=60)
def record_isolation() -> None:
    isolation.record_changes()
