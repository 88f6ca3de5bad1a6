"""Throttles reads per token or browser session: `READS_PER_MINUTE`."""

from typing import Any

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from tools.definitions.callers import Caller
from tools.definitions.results import Rate
from tools.limits import ratelimits

READING = frozenset({"GET", "HEAD"})


def note_rate(request: Request, name: str, rate: Rate | None) -> None:
    """For the headers of the answer (config/middleware.py)."""
    request._request.rate = (name, rate)  # type: ignore[attr-defined]


class Reads(BaseThrottle):
    """Calls have limits of their own, and changes cost a row of evidence each."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Raises `RateLimited`, which has more details than DRF's error."""
        if request.method in READING and isinstance(request.auth, Caller):
            note_rate(request, "read", ratelimits.count_read(request.auth))
        return True
