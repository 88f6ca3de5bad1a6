"""The Celery application: dispatch of executions, and the schedule of maintenance tasks."""

import os
from threading import BoundedSemaphore
from typing import Any

from celery import Celery, Task
from celery.signals import setup_logging
from kombu.transport.redis import Transport
from redis.exceptions import ResponseError

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# Django's checks of a generated column ask the database for its version; beat has no access to it.
# The test suite and every management command run these checks.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# On a full disk Valkey answers that it may not write. To Celery that would be the end of a worker;
# it is an unavailable broker, and the worker's own polling goes on meanwhile.
Transport.connection_errors = (*Transport.connection_errors, ResponseError)


class LimitedTask(Task):
    """A task that runs at most `at_once` times in a process. A message that comes while it does is
    dropped: beat sends the next one. So no task fills the threads of all others."""

    abstract = True
    at_once = 1

    def __init__(self) -> None:
        self._places = BoundedSemaphore(self.at_once)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not self._places.acquire(blocking=False):
            return None
        try:
            return self.run(*args, **options)
        finally:
            self._places.release()


app = Celery("toolcrib", task_cls=LimitedTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["audit", "tools.worker"])
# Not tasks: the module that a worker runs beside them, by Celery's signals.
app.autodiscover_tasks(["tools.worker"], related_name="worker_process")


@setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Connected and empty: Celery then leaves the logging of config/logs.py alone."""
