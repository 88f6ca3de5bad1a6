"""The first egress entry point: requests of `sandbox_http` as frames over the run's own socket,
many at a time.

The other side is untrusted by now. A frame that our own helper would not send closes the
connection.
"""

import asyncio
import json
import math
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from sandbox import untrusted_json
from sandbox.daemon.daemon_log import log
from sandbox.egress.egress_checks import HELPER, TIRING, RunEgress
from sandbox.egress.entry_points.messages import EgressRequest, EgressResponse
from sandbox.egress.entry_points.streams import Plain
from sandbox.egress.rules.egress_policy import Denied
from sandbox.egress.task_group import TaskGroup
from sandbox.inside.sandbox_http import PIECE, Frame, FrameKind, pack, unpack
from sandbox.strict_fields import Fields

_FRAMES_AHEAD = 4
_MOST_STRAYS = 1000
_MOST_REQUEST_BYTES = 1 << 17  # of a request without its body; reading JSON takes its time
_DISCARD_S = 0.002  # an unwanted piece is read, but at a limited speed


class BrokenRule(Exception):
    """No helper of ours sends this."""


class Upload:
    """The body of a request on its way from the run to the host; a full one blocks the
    connection."""

    def __init__(self, length: int) -> None:
        self.length = self._missing = length
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_FRAMES_AHEAD)
        self._wanted = True

    @property
    def complete(self) -> bool:
        return self._missing == 0

    async def add_chunk(self, chunk: bytes) -> None:
        """Raises BrokenRule: a body comes in whole pieces, so that none costs more than it is."""
        if len(chunk) != min(PIECE, self._missing):
            raise BrokenRule("a piece of a body that is too short or too long")
        self._missing -= len(chunk)
        if self._wanted:
            await self._chunks.put(chunk)
        else:
            await asyncio.sleep(_DISCARD_S)

    async def chunks(self) -> AsyncIterator[bytes]:
        left = self.length
        while left:
            chunk = await self._chunks.get()
            left -= len(chunk)
            yield chunk

    def give_up(self) -> None:
        """What still comes is thrown away; who waits with a chunk may go on."""
        self._wanted = False
        while not self._chunks.empty():
            self._chunks.get_nowait()


class FrameParser:
    """Frames out of bytes as they come. Raises BrokenRule."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        try:
            return unpack(self._buffer)
        except ValueError as reason:
            raise BrokenRule(str(reason)) from None


class EgressEntryPoint:
    def __init__(self, channel: socket.socket, reach: RunEgress) -> None:
        self._stream, self._reach = Plain(channel), reach
        self._answers: asyncio.Queue[bytes] = asyncio.Queue(_FRAMES_AHEAD)
        # One more than may be under way, for the one that is refused.
        self._places = asyncio.Semaphore(reach.limits.connections + 1)
        self._uploads: dict[int, Upload] = {}
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._last = self._strays = 0

    async def serve(self) -> None:
        """Until the run closes it or breaks a rule; it is closed then."""
        async with TaskGroup() as task_group:
            task_group.begin(self._write())
            try:
                await self._read(task_group)
            except OSError:
                pass  # the run has ended
            except BrokenRule as reason:
                log("door_closed", reason=str(reason))
        self._stream.close()

    async def _read(self, task_group: TaskGroup) -> None:
        parser = FrameParser()
        while data := await self._stream.receive():
            for frame in parser.feed(data):
                await self._take(frame, task_group)

    async def _write(self) -> None:
        """Frames stay whole: a request that ends in time never ends in the middle of one."""
        try:
            while True:
                waiting = [await self._answers.get()]
                while not self._answers.empty():
                    waiting.append(self._answers.get_nowait())
                await self._stream.send(b"".join(waiting))
        except OSError:
            return  # reading finds the end as well

    async def _take(self, frame: Frame, task_group: TaskGroup) -> None:
        match frame.kind:
            case FrameKind.REQUEST:
                await self._begin(frame, task_group)
            case FrameKind.BODY if frame.number in self._uploads:
                await self._feed(frame)
            case FrameKind.CANCEL:
                self._cancel(frame.number)
            case _:
                raise BrokenRule("a frame out of its order")

    async def _begin(self, frame: Frame, task_group: TaskGroup) -> None:
        if frame.number <= self._last:
            raise BrokenRule("a number that was used before")
        self._last = frame.number
        request = read_request(frame.payload)
        upload = Upload(request.length or 0)
        if not upload.complete:
            self._uploads[frame.number] = upload
        await self._places.acquire()
        task = task_group.begin(self._answer(frame.number, replace(request, body=upload.chunks())))
        self._requests[frame.number] = task
        task.add_done_callback(lambda _: self._drop_request(frame.number, upload))

    def _drop_request(self, number: int, upload: Upload) -> None:
        upload.give_up()
        del self._requests[number]
        self._places.release()

    async def _feed(self, frame: Frame) -> None:
        upload = self._uploads[frame.number]
        await upload.add_chunk(frame.payload)
        if upload.complete:
            del self._uploads[frame.number]

    def _cancel(self, number: int) -> None:
        """A request may have ended before its cancelling came."""
        self._uploads.pop(number, None)
        if number in self._requests:
            self._requests[number].cancel()
            return
        self._strays += 1
        if self._strays > _MOST_STRAYS:
            raise BrokenRule("too many requests cancelled that are not under way")

    async def _answer(self, number: int, request: EgressRequest) -> None:
        try:
            async with self._reach.request(HELPER, request) as answer:
                await self._pass_on(number, answer)
        except Denied as denied:
            refusal = {"code": str(denied.code), "message": str(denied)}
            await self._say(FrameKind.REFUSED, number, _encoded(refusal))
            if denied.code in TIRING:
                await self._reach.slow_down()

    async def _pass_on(self, number: int, answer: EgressResponse) -> None:
        length = [] if answer.length is None else [("content-length", str(answer.length))]
        head = {"status": answer.status, "headers": [*answer.headers, *length]}
        await self._say(FrameKind.HEAD, number, _encoded(head))
        async for chunk in answer.body:
            for start in range(0, len(chunk), PIECE):
                await self._say(FrameKind.BODY, number, chunk[start : start + PIECE])
        await self._say(FrameKind.END, number)

    async def _say(self, kind: FrameKind, number: int, payload: bytes = b"") -> None:
        await self._answers.put(pack(Frame(kind, number, payload)))


def read_request(payload: bytes) -> EgressRequest:
    """The texts may contain anything; whether they name a valid host is checked later.

    Raises BrokenRule.
    """
    if len(payload) > _MOST_REQUEST_BYTES:
        raise BrokenRule("not a request: too long")
    try:
        untrusted_json.check_depth(payload)
        fields = Fields(json.loads(payload))
        request = fields.done(
            EgressRequest(
                method=fields.text("method"),
                url=fields.text("url"),
                headers=fields.pairs("headers"),
                length=fields.integer("length"),
                timeout_s=fields.number("timeout_s"),
            )
        )
    except (ValueError, RecursionError) as error:  # SpecInvalid and Hostile are ValueErrors
        raise BrokenRule(f"not a request: {type(error).__name__}") from None
    if (request.length or 0) < 0 or not 0 < (request.timeout_s or 0) < math.inf:
        raise BrokenRule("not a request: a number out of its range")
    return request


def _encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
