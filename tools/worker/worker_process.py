"""A worker process beside Celery's tasks: background loops, heartbeats and graceful shutdown.

Only one that takes executions has loops and heartbeats; a housekeeper begins and ends the same way.

On a stop signal, it takes nothing more and lets its runs end for `EXECUTION_GRACE_S`. Runs that
remain are stopped and requeued. A process that cannot end after that exits as if it were killed:
its leases run out, and the reaper settles its executions.

Each worker reports by heartbeats that it takes executions; reports expire soon. A worker whose
poller has not queried the database recently does not report, though it lives.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
from celery import Celery
from celery.signals import worker_init, worker_ready, worker_shutting_down
from django.conf import settings
from django.db import DatabaseError, connection
from psycopg_pool import PoolTimeout

from audit import tasks
from audit.log import anchors, checkpoint_publication
from config import timeouts
from config.database import CONNECTION_ERRORS, close_connections, replace_dead_connections
from tools.execution import dispatch, events, leases
from tools.execution.dispatch import worker_name
from tools.worker.polling import Poller
from tools.worker.wake_ups import WakeUps

log = logging.getLogger(__name__)
_EX_TEMPFAIL = 75
KEYS = "toolcrib:worker:"
HEARTBEAT_INTERVAL_S = 2.0
HEARTBEAT_TTL_S = 7
STALE_S = 10.0  # after which a poller counts as hung
_heartbeat_stop = threading.Event()


def workers_alive() -> int:
    """How many workers have sent a heartbeat within `HEARTBEAT_TTL_S` seconds."""
    try:
        return sum(1 for _ in events.redis_connection().scan_iter(match=f"{KEYS}*", count=100))
    except redis.RedisError:
        return 0


@worker_init.connect
def _begin_loops(sender: Any, **_: Any) -> None:
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
    if takes_executions(sender.app):
        _begin_loop(Poller().poll, every_s=timeouts.POLL_S, name="poller")
        _begin_loop(tasks.replace_silent_beat, every_s=tasks.BEAT_CHECK_S, name="stand-in")
        WakeUps().start()


def takes_executions(app: Celery) -> bool:
    """Whether this process consumes the queue of executions, and not housekeeping alone."""
    return settings.CELERY_TASK_DEFAULT_QUEUE in app.amqp.queues.consume_from


def compare_logs() -> None:
    """Compare audit logs with their anchors before the first call is taken: a restored database
    holds calls that were run since.

    Without a database, or while a log cannot be halted in it, no call can be taken either, so this
    waits. Anchors that are kept on another machine are compared there.
    """
    while anchors.has_anchors() and not dispatch.stopping.is_set():
        try:
            checkpoint_publication.compare_logs()
            return
        except (DatabaseError, PoolTimeout) as error:
            log.warning("the audit logs were not compared with their anchors: %s", error)
        finally:
            close_connections()
        dispatch.stopping.wait(timeouts.POLL_S)


@worker_shutting_down.connect
def _shut_down(**_: Any) -> None:
    if not dispatch.stopping.is_set():
        dispatch.stopping.set()
        threading.Thread(target=_exit_after_grace, name="end", daemon=True).start()


def _exit_after_grace() -> None:
    time.sleep(settings.EXECUTION_GRACE_S)
    stopped = leases.LEASES.hand_back()
    log.warning("the worker's grace period is over; %d runs are requeued", stopped)
    time.sleep(timeouts.REQUEUE_S)
    log.critical("the worker did not end in time and exits")
    os._exit(_EX_TEMPFAIL)


# --- background loops ---
def _begin_loop(work: Callable[[], object], *, every_s: float, name: str) -> None:
    """In a thread of its own, until the process has to stop."""
    threading.Thread(target=_run_loop, args=[work, every_s, name], name=name, daemon=True).start()


def _run_loop(work: Callable[[], object], every_s: float, name: str) -> None:
    while not dispatch.stopping.wait(every_s):
        try:
            work()
        except CONNECTION_ERRORS as error:
            log.warning("the %s had no database: %s", name, type(error).__name__)
            replace_dead_connections()
        except Exception:  # the thread's outermost edge: it must not end
            log.exception("the %s failed unexpectedly", name)
        finally:
            connection.close()


# --- heartbeats ---
@worker_ready.connect
def _begin_heartbeats(sender: Any, **_: Any) -> None:
    if not takes_executions(sender.app):
        return
    _heartbeat_stop.clear()
    threading.Thread(target=_send_heartbeats, name="heartbeat", daemon=True).start()


@worker_shutting_down.connect
def _end_heartbeats(**_: Any) -> None:
    _heartbeat_stop.set()


def _send_heartbeats() -> None:
    key = f"{KEYS}{worker_name().rpartition(':')[0]}"
    while not _heartbeat_stop.is_set():
        try:
            if dispatch.polled.age_s < STALE_S:
                events.redis_connection().set(key, int(time.time()), ex=HEARTBEAT_TTL_S)
        except redis.RedisError as error:
            log.warning("the heartbeat was not sent: %s", type(error).__name__)
        _heartbeat_stop.wait(HEARTBEAT_INTERVAL_S)
    try:
        events.redis_connection().delete(key)
    except redis.RedisError as error:
        log.warning("the last heartbeat was not deleted: %s", type(error).__name__)
