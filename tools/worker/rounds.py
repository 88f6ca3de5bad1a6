"""Background loops of a worker process, each in a thread of its own, which survive errors."""

import logging
import threading
from collections.abc import Callable

from django.db import connection

from config.database import CONNECTION_ERRORS, replace_dead_connections
from tools.execution import capacity

log = logging.getLogger(__name__)


def begin(look: Callable[[], object], *, every_s: float, name: str) -> None:
    """Until the process has to stop."""
    threading.Thread(target=_keep, args=[look, every_s, name], name=name, daemon=True).start()


def _keep(look: Callable[[], object], every_s: float, name: str) -> None:
    while not capacity.stopping.wait(every_s):
        try:
            look()
        except CONNECTION_ERRORS as error:
            log.warning("the %s had no database: %s", name, type(error).__name__)
            replace_dead_connections()
        except Exception:  # the thread's outermost edge: it must not end
            log.exception("the %s met a fault of ours", name)
        finally:
            connection.close()
