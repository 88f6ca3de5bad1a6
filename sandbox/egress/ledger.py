"""The egress ledger of a run: its attempts, its usage, and what remains of its limits."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox.egress.rules.egress_policy import (
    Code,
    Denied,
    EgressAttempt,
    EgressLimits,
    EgressSummary,
)

MOST_DESCRIBED = 200
_LONGEST_WRITTEN = 100


class Ledger:
    """Of one run. Every attempt is counted at its beginning; the first ones are described."""

    def __init__(self, limits: EgressLimits) -> None:
        self.limits = limits
        self._requests = self._refused = 0
        self._under_way = 0
        self._sent = self._received = 0
        self._entries: list[EgressLedgerEntry] = []

    @contextmanager
    def attempt(self, door: str) -> Iterator["EgressLedgerEntry"]:
        """An entry for what the block does; a Denied that leaves it is written down."""
        entry = EgressLedgerEntry(self, door, time.monotonic())
        self._requests += 1
        if len(self._entries) < MOST_DESCRIBED:
            self._entries.append(entry)
        self._under_way += 1
        try:
            yield entry
        except Denied as denied:
            entry.code = denied.code
            self._refused += 1
            raise
        finally:
            self._under_way -= 1
            entry.ended = time.monotonic()

    def check_share(self) -> None:
        """Raises Denied when the attempt that has just begun is one too many."""
        if self._requests > self.limits.requests:
            raise Denied(Code.REQUEST_LIMIT, f"a run has {self.limits.requests} requests")
        if self._under_way > self.limits.connections:
            reason = f"a run has {self.limits.connections} connections at a time"
            raise Denied(Code.CONNECTION_LIMIT, reason)

    def use(self, *, sent: int = 0, received: int = 0) -> None:
        """Raises Denied when the run has sent or received more than it may."""
        self._sent += sent
        self._received += received
        if self._sent > self.limits.request_bytes:
            raise Denied(Code.TOO_LARGE, f"a run may send {self.limits.request_bytes} bytes")
        if self._received > self.limits.response_bytes:
            raise Denied(Code.TOO_LARGE, f"a run may receive {self.limits.response_bytes} bytes")

    def tally(self) -> EgressSummary:
        attempts = tuple(entry.described() for entry in self._entries)
        return EgressSummary(self._requests, self._refused, attempts)


@dataclass(slots=True)
class EgressLedgerEntry:
    """One attempt under way; filled in as more is known of it."""

    ledger: Ledger
    door: str
    began: float
    method: str = ""
    host: str = ""
    port: int = 0
    address: str = ""
    code: str = ""
    status: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    ended: float | None = None

    def sent(self, count: int) -> None:
        self.sent_bytes += count
        self.ledger.use(sent=count)

    def received(self, count: int) -> None:
        self.received_bytes += count
        self.ledger.use(received=count)

    def described(self) -> EgressAttempt:
        ended = time.monotonic() if self.ended is None else self.ended
        return EgressAttempt(
            door=self.door,
            method=written(self.method),
            host=written(self.host),
            port=self.port,
            address=self.address,
            code=self.code,
            status=self.status,
            bytes_sent=self.sent_bytes,
            bytes_received=self.received_bytes,
            duration_ms=round((ended - self.began) * 1000, 3),
        )


def written(text: str) -> str:
    """Short and printable for any input of a run: NUL and line feeds show as escapes."""
    return ascii(text[:_LONGEST_WRITTEN])[1:-1]


def host_in_url(text: str) -> str:
    """The part of an unchecked URL where a host should be; nothing else of it.

    The rest may hold secrets, as may a user name.
    """
    _, _, rest = text.partition("://")
    return host_in_authority(re.split(r"[/?#]", rest, maxsplit=1)[0])


def host_in_authority(text: str) -> str:
    return re.sub(r":[0-9]*\Z", "", text.rpartition("@")[2])
