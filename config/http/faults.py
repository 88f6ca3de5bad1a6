"""Requests that were answered 500: a metric, and evidence that the alert `faults` is raised
from."""

import logging
import sys
import time
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest
from prometheus_client import Counter
from psycopg_pool import PoolTimeout

from audit.actions import Actor, record
from audit.errors import Unwritable
from audit.events import Event, Outcome
from config.logs import request_id

log = logging.getLogger(__name__)
AGAIN_S = 60.0  # one address of one organization is not written down more often
faults = Counter(
    "toolcrib_server_errors_total", "Requests answered 500: faults of the product.", ["address"]
)
_noted: dict[tuple[str, str], float] = {}


def note(request: HttpRequest) -> None:
    """Record the failing request. Never fails itself."""
    place = getattr(request.resolver_match, "route", "") if request.resolver_match else ""
    address = f"{request.method} /{place}"
    faults.labels(address).inc()
    user: Any = getattr(request, "user", None)
    place_of_user = getattr(getattr(user, "organization", None), "slug", "")
    organization = getattr(user, "organization_slug", place_of_user)
    if not organization or _is_known(organization, address):
        return
    error = sys.exception()
    try:
        record(
            Event.SERVER_FAULT,
            by=Actor("system", user.username, organization, request_id=request_id.get()),
            outcome=Outcome.FAILURE,
            subject=address,
            reason=type(error).__name__ if error else "",
        )
    except (DatabaseError, InterfaceError, PoolTimeout, Unwritable):
        log.exception("a fault is not on record: %s", address)


def _is_known(organization: str, address: str) -> bool:
    now, key = time.monotonic(), (organization, address)
    if now - _noted.get(key, -AGAIN_S) < AGAIN_S:
        return True
    _noted[key] = now
    return False
