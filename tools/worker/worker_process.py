"""The worker process beside Celery's tasks: polling, fallback for beat, and graceful shutdown.

On a stop signal, it takes nothing more and lets its runs end for `EXECUTION_GRACE_S`. Runs that
remain are stopped and requeued. A process that cannot end after that exits as if it were killed:
its leases run out, and the reaper settles what it had.
"""

import logging
import os
import threading
import time
from typing import Any

from celery.signals import worker_init, worker_shutting_down
from django.conf import settings
from django.db import DatabaseError
from psycopg_pool import PoolTimeout

from audit import tasks
from audit.log import anchors, checkpoint_publication
from config import timeouts
from config.database import close_connections
from tools.execution import capacity, leases
from tools.worker import rounds
from tools.worker.polling import Poller

log = logging.getLogger(__name__)
_EX_TEMPFAIL = 75


@worker_init.connect
def _begin(**_: Any) -> None:
    """Before Celery connects: while Redis is away it may try to for hours."""
    try:
        timeouts.assert_order()
        compare_logs()
    except (
        timeouts.TimeoutsDisordered,
        OSError,
        ValueError,
    ) as flaw:  # of keys or anchors, perhaps
        raise SystemExit(str(flaw)) from flaw  # any other exception Celery would only log
    rounds.begin(Poller().look, every_s=timeouts.POLL_S, name="poller")
    rounds.begin(tasks.replace_silent_beat, every_s=tasks.BEAT_CHECK_S, name="stand-in")


def compare_logs() -> None:
    """Before the first call is taken: a database that was put back holds calls that were run since.

    Without a database, or while a log cannot be halted in it, nothing can be taken either: it is
    waited for. Anchors that are kept on another machine are compared there.
    """
    while anchors.has_anchors() and not capacity.stopping.is_set():
        try:
            checkpoint_publication.compare_logs()
            return
        except (DatabaseError, PoolTimeout) as error:
            log.warning("the logs were not compared with their anchors: %s", error)
        finally:
            close_connections()
        capacity.stopping.wait(timeouts.POLL_S)


@worker_shutting_down.connect
def _stop(**_: Any) -> None:
    if not capacity.stopping.is_set():
        capacity.stopping.set()
        threading.Thread(target=_end_in_time, name="end", daemon=True).start()


def _end_in_time() -> None:
    time.sleep(settings.EXECUTION_GRACE_S)
    stopped = leases.KEEPER.hand_back()
    log.warning("the worker's time is over; %d runs are handed back", stopped)
    time.sleep(timeouts.REQUEUE_S)
    log.critical("the worker did not end in time and ends itself")
    os._exit(_EX_TEMPFAIL)
