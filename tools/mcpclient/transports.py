"""The interface of a transport, the base of transports over a lasting stream, and stdio.

HTTP is in http_transports.py.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from sandbox.errors import RunRefused
from sandbox.server_client import ServerProcess
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    SessionExpired,
    UpstreamFailure,
    UpstreamUnavailable,
    quote_text,
)
from tools.mcpclient.json_rpc import (
    MOST_MESSAGE_BYTES,
    JsonRpcMessage,
    JsonRpcRequest,
    encode_notification,
    encode_reply,
    encode_request,
    is_answer,
    parse_message,
)

# Takes a notification or request of the server, and returns the reply to it.
MessageHandler = Callable[[JsonRpcMessage], bytes | None]
StartProcess = Callable[[], ServerProcess]

MOST_PENDING_REQUESTS = 1_000
DISCOVER_METHOD = "server/discover"  # the first request of the newest version
PROBE_TIMEOUT_S = 10.0  # a server that does not know the newest version may not answer at all
_MOST_UNREAD_BYTES = 8 * 1024 * 1024  # of ours, in a server that does not read
_MOST_UNREQUESTED_BYTES = 64 * 1024 * 1024  # of a server, between two answers
_MOST_INVALID_LINES = 100  # in a row: some servers print to their output
_LONGEST_OUTPUT = 500
_SHORTEST_SECRET = 4
_MASK = "•••"


class McpTransport(Protocol):
    """Sends messages to one server and receives its answers."""

    supports_modern: bool  # whether the newest version may be tried
    probe_timeout_s: float  # of that probe

    async def send_request(
        self, request: JsonRpcRequest, version: str, handler: MessageHandler
    ) -> JsonRpcMessage:
        """The answer. Sets `request.sent`. Raises UpstreamFailure."""

    async def send_message(self, message: bytes, version: str) -> None:
        """Sends a notification or a reply. Raises UpstreamFailure."""

    async def cancel_request(self, request: JsonRpcRequest, version: str) -> None:
        """Tells the server that no answer is needed. Raises UpstreamFailure."""

    def reset_session(self) -> None:
        """Forgets the session."""

    async def close(self, version: str) -> None:
        """Ends the session and closes all connections. Raises nothing."""


class StreamTransport(ABC):
    """A lasting stream in both directions: answers are matched to their requests by id.

    `_connect` starts the reader of the stream, which calls `_handle_message` with each message and
    `_fail_pending` at the end of the stream.
    """

    supports_modern = False
    probe_timeout_s = PROBE_TIMEOUT_S

    def __init__(self) -> None:
        self._pending: dict[
            int, tuple[JsonRpcRequest, MessageHandler, asyncio.Future[JsonRpcMessage]]
        ] = {}
        self._connected = False
        self._last_handler: MessageHandler | None = None

    @abstractmethod
    async def _connect(self) -> None:
        """Raises UpstreamFailure."""

    @abstractmethod
    async def _write(self, message: bytes) -> None:
        """Raises UpstreamUnavailable if the server has not received the complete message."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Raises nothing."""

    async def send_request(
        self, request: JsonRpcRequest, version: str, handler: MessageHandler
    ) -> JsonRpcMessage:
        if not self._connected:
            if version and request.method != DISCOVER_METHOD:
                raise SessionExpired("The MCP server ended the stream.")
            await self._connect()
            self._connected = True
        if len(self._pending) >= MOST_PENDING_REQUESTS:
            raise UpstreamUnavailable("Too many calls wait for the MCP server.")
        answer: asyncio.Future[JsonRpcMessage] = asyncio.get_running_loop().create_future()
        self._last_handler, self._pending[request.id] = handler, (request, handler, answer)
        request.sent = True
        try:
            await self._write(encode_request(request, version))
            return await answer
        except UpstreamUnavailable:
            request.sent = False
            raise
        finally:
            self._pending.pop(request.id, None)

    async def send_message(self, message: bytes, version: str) -> None:
        if self._connected:
            await self._write(message)

    async def cancel_request(self, request: JsonRpcRequest, version: str) -> None:
        params = {"requestId": request.id, "reason": "the caller gave the call up"}
        await self.send_message(encode_notification("notifications/cancelled", params), version)

    def reset_session(self) -> None:
        """The next session has a new stream; `_connect` ends the old one."""
        self._connected = False

    async def close(self, version: str) -> None:
        self._fail_pending(AnswerLost("The conversation with the MCP server was ended."))
        await self._disconnect()

    async def _handle_message(self, message: JsonRpcMessage) -> bool:
        """Handles a message of the server; True for the answer to a pending request."""
        if is_answer(message):
            message_id = message.get("id")
            pending = self._pending.get(message_id) if type(message_id) is int else None
            if pending is not None and not pending[2].done():
                pending[2].set_result(message)
            return pending is not None
        handlers = [handler for _, handler, _ in self._pending.values()]
        for handler in handlers or ([self._last_handler] if self._last_handler else []):
            handler(message)
        reply = encode_reply(message)
        if reply is not None:
            await self._write(reply)
        return False

    def _fail_pending(self, problem: UpstreamFailure) -> None:
        self._connected = False
        for _, _, answer in list(self._pending.values()):
            if not answer.done():
                answer.set_exception(problem)


def stream_error(problem: UpstreamFailure) -> UpstreamFailure:
    """The error of the requests that were pending when the stream ended."""
    return problem if isinstance(problem, InvalidAnswer) else AnswerLost(str(problem))


class StdioTransport(StreamTransport):
    """A server process that speaks on its stdin and stdout, one message a line.

    `start` blocks until the process runs, and raises RunRefused and OSError. `secrets` are masked
    in the quotation of the process's last output.
    """

    supports_modern = True
    probe_timeout_s = 30.0  # includes the start of its program

    def __init__(self, start: StartProcess, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._start = start
        self._secrets = [one for one in secrets if len(one) >= _SHORTEST_SECRET]
        self._process: ServerProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.Task[None] | None = None

    async def send_request(
        self, request: JsonRpcRequest, version: str, handler: MessageHandler
    ) -> JsonRpcMessage:
        try:
            return await super().send_request(request, version, handler)
        except AnswerLost as problem:
            if request.method == DISCOVER_METHOD:  # some exit at an unknown method
                raise InvalidAnswer(str(problem)) from None
            raise

    async def _connect(self) -> None:
        await self._disconnect()
        self._process = await self._start_process()
        stream, self._writer = await asyncio.open_unix_connection(
            sock=self._process.stdio, limit=MOST_MESSAGE_BYTES
        )
        self._reader = asyncio.get_running_loop().create_task(self._read(stream, self._process))

    async def _start_process(self) -> ServerProcess:
        """Starts in a thread, because it blocks. Ends the process if the caller stops waiting."""
        process = asyncio.get_running_loop().run_in_executor(None, self._start)
        try:
            return await asyncio.shield(process)
        except asyncio.CancelledError:
            process.add_done_callback(_close_late_process)
            raise
        except RunRefused as reason:
            raise UpstreamUnavailable(f"The MCP server was not started: {reason}.") from None
        except OSError as error:
            message = f"The MCP server was not started: the sandbox cannot be reached ({error})."
            raise UpstreamUnavailable(message) from None

    async def _write(self, message: bytes) -> None:
        writer = self._writer
        if writer is None or writer.is_closing() or not self._connected:
            raise UpstreamUnavailable("The MCP server has ended.")
        if writer.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            raise UpstreamUnavailable("The MCP server does not read what it is sent.")
        writer.write(message + b"\n")
        try:
            await writer.drain()
        except OSError:  # it may have read the message
            raise AnswerLost("The MCP server ended.") from None

    async def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.transport.abort()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(None, process.close)

    async def _read(self, stream: asyncio.StreamReader, process: ServerProcess) -> None:
        problem: UpstreamFailure
        try:
            await self._read_lines(stream)
            problem = AnswerLost(await self._exit_message(process))
        except UpstreamFailure as failure:
            problem = failure
        except OSError:
            problem = AnswerLost(await self._exit_message(process))
        self._fail_pending(stream_error(problem))
        if self._writer is not None:
            self._writer.transport.abort()
        await asyncio.get_running_loop().run_in_executor(None, process.close)  # kills it

    async def _read_lines(self, stream: asyncio.StreamReader) -> None:
        """Reads to the end of the stream. Raises InvalidAnswer."""
        invalid_lines = unrequested = 0
        while line := await _read_line(stream):
            unrequested += len(line)
            try:
                message = parse_message(line)
            except InvalidAnswer:
                invalid_lines += 1
                if invalid_lines > _MOST_INVALID_LINES:
                    raise
            else:
                invalid_lines = 0
                if await self._handle_message(message):
                    unrequested = 0
            if unrequested > _MOST_UNREQUESTED_BYTES:
                raise InvalidAnswer(
                    "The MCP server sends too many messages that were not requested."
                )

    async def _exit_message(self, process: ServerProcess) -> str:
        reason, output = await asyncio.get_running_loop().run_in_executor(None, process.last_words)
        for secret in self._secrets:
            output = output.replace(secret, _MASK)
        quotation = quote_text(output.strip()[-_LONGEST_OUTPUT:])
        cause = f": {reason}" if reason and reason != "it ended" else ""
        return f"The MCP server ended{cause}." + (
            f" It said last: {quotation}" if quotation else ""
        )


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """The next line that is not empty; empty at the end. Raises InvalidAnswer."""
    try:
        while (line := await stream.readuntil(b"\n")).isspace():
            pass
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError:
        raise InvalidAnswer(
            f"The MCP server sent a message of more than {MOST_MESSAGE_BYTES} bytes."
        ) from None
    return line


def _close_late_process(process: "asyncio.Future[ServerProcess]") -> None:
    if not process.cancelled() and process.exception() is None:
        process.result().close()
