"""What a worker takes for a broker that is away, and outlives."""

import subprocess
import sys

from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ResponseError

from config.celery import LimitedTask, app
from config.local.process_specs import HOUSEKEEPING_THREADS
from tools.execution.dispatch import RUN_EXECUTION


def _own_tasks() -> dict[str, LimitedTask]:
    app.loader.import_default_modules()
    return {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}


def _queue(task: str) -> str:
    return app.amqp.router.route({}, task)["queue"].name


def test_everything_but_executions_is_housekeeping_and_has_a_queue_of_its_own() -> None:
    queues = {name: _queue(name) for name in _own_tasks()}
    assert queues.pop(RUN_EXECUTION) == app.conf.task_default_queue == "executions"
    assert set(queues) == set(app.conf.beat_schedule)
    assert set(queues.values()) == {"housekeeping"}


def test_the_housekeeper_has_a_thread_for_whatever_its_tasks_may_run_at_once() -> None:
    most = {name: task.at_once for name, task in _own_tasks().items() if name != RUN_EXECUTION}
    assert sum(most.values()) <= HOUSEKEEPING_THREADS
    assert most["tools.execution.tasks.reap"] == 1


def test_a_task_that_still_runs_is_not_begun_again() -> None:
    begun: list[int] = []

    @app.task(name="tests.limited", shared=False)
    def limited(deep: int) -> None:
        begun.append(deep)
        if deep:
            limited(deep - 1)

    try:
        limited(1)
        limited(0)
    finally:
        app.tasks.unregister("tests.limited")
    assert begun == [1, 0]


def test_a_broker_that_may_not_write_is_one_that_is_away():
    with app.connection_for_read() as connection:
        assert {ResponseError, NoConnection} <= set(connection.recoverable_connection_errors)


def test_what_beat_loads_asks_no_database() -> None:
    """It has no access to one: its account may not open the server's socket."""
    program = """
from django.db.backends.base.base import BaseDatabaseWrapper
def connect(self):
    raise SystemExit("a database was asked")
BaseDatabaseWrapper.connect = connect
from config.celery import app
app.loader.import_default_modules()
print("loaded")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip().endswith("loaded"), done.stderr[-500:]
