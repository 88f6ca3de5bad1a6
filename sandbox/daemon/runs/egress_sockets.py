"""Connections from a run to the egress broker, open for the duration of the run."""

from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.daemon.runs.slot import SandboxSlot
from sandbox.egress.attach import attach
from sandbox.errors import ErrorCode, RunRefused


class Doors:
    def __init__(self, egress_path: str) -> None:
        self._path = egress_path

    @contextmanager
    def opened(self, slot: SandboxSlot, ticket: str | None) -> Iterator[None]:
        """Attach the far ends of the slot's egress sockets to the broker until the run is over.

        Raises Refused with EGRESS_UNAVAILABLE. Without a ticket they lead nowhere.
        """
        if slot.door is None or ticket is None:
            slot.shut_doors()
            yield
            return
        if not self._path:
            raise RunRefused(ErrorCode.EGRESS_UNAVAILABLE, "sandboxd knows no egress broker")
        lifeline = attach(self._path, ticket, helper=slot.door, proxy=slot.proxy)
        slot.shut_doors()
        with lifeline:
            yield
