"""Words to workers: which row may be begun. A hint makes it quick; whoever gets none looks."""

import logging
import threading
from collections.abc import Iterable
from uuid import UUID

from celery import current_app
from kombu.exceptions import OperationalError

from tools.execution import bell

log = logging.getLogger(__name__)
RUN_EXECUTION = "tools.execution.tasks.run_execution"
_places, _PLACE_S = threading.BoundedSemaphore(4), 0.05


def tell(execution_ids: Iterable[UUID]) -> None:
    """Hints, as long as they can be given. Whoever is not told of finds a poller.

    A Redis that hangs holds up as many callers as there are places, and then none for a moment.
    By its name: what the task runs may give hints of its own.
    """
    if bell.pause or not _places.acquire(timeout=_PLACE_S):
        return
    try:
        for execution_id in execution_ids:
            words = (str(execution_id),)
            current_app.send_task(RUN_EXECUTION, words, ignore_result=True, retry=False)
    except OperationalError as error:
        bell.pause.begin()
        log.warning("no worker was told: %s", type(error).__name__)
    finally:
        _places.release()
