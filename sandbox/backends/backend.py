"""The interface of a sandbox backend: it puts a process that waits for one job in a sandbox."""

from typing import Protocol

from sandbox.daemon.runs.slot import SandboxSlot, SlotDisk
from sandbox.spec import Backend, IsolationLevel, Profile


class SlotSource(Protocol):
    """Slots for the runs of one organization with one profile; `daemon/runs/template.py` is one.

    `used_at` is a time of the monotonic clock, `forks` how many slots were ever made.
    """

    used_at: float
    forks: int

    @property
    def alive(self) -> bool: ...

    @property
    def busy(self) -> bool: ...

    @property
    def current(self) -> bool:
        """Its slots have what the paths of the profile lead to now."""
        ...

    def ready_count(self) -> int: ...

    def take(self, disk: SlotDisk, timeout_s: float) -> SandboxSlot:
        """Raises Refused with LAUNCH_FAILED when there is none in time."""
        ...

    def refill(self, disk: SlotDisk) -> None: ...

    def reserve(self) -> None:
        """A run is going to take a slot: until it is released this source may not retire."""
        ...

    def give_back(self) -> None: ...

    def retire(self) -> None:
        """End all its slots, also taken ones."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait until a retired source has cleared up."""
        ...


class SandboxBackend(Protocol):
    """`ceiling` is the highest level it offers, `network` whether its runs may reach the egress
    broker."""

    @property
    def name(self) -> Backend: ...

    @property
    def ceiling(self) -> IsolationLevel: ...

    @property
    def network(self) -> bool: ...

    def flaw(self) -> str | None:
        """Why it cannot be had on this machine, and what to do about it; None: it was tried."""
        ...

    def template(self, profile: Profile) -> SlotSource: ...
