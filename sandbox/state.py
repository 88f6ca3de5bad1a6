"""The state of a running sandboxd, for pages that show it."""

import json
import socket
import threading
import time
from dataclasses import dataclass
from typing import Self

from sandbox import wire
from sandbox.daemon.trials.capability import Capability
from sandbox.errors import SpecInvalid
from sandbox.strict_fields import Fields

PATIENCE_S = 0.2  # no page waits longer for a sandboxd that hangs
_KEPT_S = 1.0
_ANSWER_CAP = 1024 * 1024
_OWN = ("templates", "slots", "servers", "pid")


@dataclass(frozen=True)
class SandboxdState:
    capability: Capability
    templates: int
    slots: int
    servers: int
    pid: int

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Raises ValueError."""
        if not isinstance(wire, dict):
            raise SpecInvalid("expected an object")
        own = Fields({name: wire.get(name) for name in _OWN})
        rest = {name: value for name, value in wire.items() if name not in _OWN}
        return cls(Capability.from_wire(rest), *(own.integer(name) for name in _OWN))


def ask(path: str, timeout_s: float) -> SandboxdState:
    """Raises OSError when there is no answer in time, or none that can be read."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(timeout_s)
        door.connect(path)
        try:
            wire.send(door, wire.encode({"type": "ping"}))
            return SandboxdState.from_wire(json.loads(wire.FrameReader(door, _ANSWER_CAP).read()))
        except (wire.ConnectionEnded, wire.FrameTooLarge, ValueError) as error:
            raise ConnectionAbortedError(f"sandboxd answers oddly: {error!r}") from None


class SandboxdStateCache:
    """For threads that ask often: an answer, or that there was none, is good for a second."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: SandboxdState | None = None
        self._until = 0.0

    def state(self) -> SandboxdState | None:
        """None when sandboxd does not answer at once."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._read_state()
                self._until = time.monotonic() + _KEPT_S
            return self._known

    def _read_state(self) -> SandboxdState | None:
        try:
            return ask(self._path, PATIENCE_S)
        except OSError:
            return None
