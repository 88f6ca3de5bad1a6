"""The connection to the worker during a run: no run outlives its lease."""

import math
import select
import socket
import time

from sandbox import wire

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class WorkerChannel:
    """Single use, like the run. `until` is when it must be over unless the worker says more.

    A worker that was stopped keeps its socket open and says nothing while its lease runs out.
    """

    def __init__(
        self,
        channel: socket.socket,
        reader: wire.FrameReader | None = None,
        until: float = math.inf,
    ) -> None:
        self._channel, self._until = channel, until
        self._reader = reader or wire.FrameReader(channel, wire.ALIVE_CAP)

    def fileno(self) -> int:
        return self._channel.fileno()

    def left_s(self) -> float:
        return self._until - time.monotonic()

    def waits(self) -> bool:
        """It has not hung up, and its time has not run out: something may begin for it."""
        look = select.poll()
        look.register(self._channel, select.POLLIN | _GONE)
        while look.poll(0):
            if not self.hear():
                return False
        return self.left_s() > 0

    def hear(self) -> bool:
        """Read what it said; False when it has hung up.

        Raises SpecInvalid and FrameTooLarge for anything but a few words.
        """
        usual, self._reader.cap = self._reader.cap, wire.ALIVE_CAP
        try:
            open_still = self._reader.feed()
            while (frame := self._reader.next_whole()) is not None:
                self._until = wire.read_alive(wire.decode(frame))
        finally:
            self._reader.cap = usual
        return open_still
