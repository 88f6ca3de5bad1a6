"""A server that is started for us and speaks on its stdin and stdout: a message a line."""

import asyncio
from collections.abc import Callable, Iterable

from sandbox.errors import RunRefused
from sandbox.server_client import ServerProcess
from tools.mcpclient.channel import MessageHandler
from tools.mcpclient.duplex import DISCOVER_METHOD, StreamTransport, stream_error
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    UpstreamFailure,
    UpstreamUnavailable,
    quote_text,
)
from tools.mcpclient.messages import (
    MOST_MESSAGE_BYTES,
    JsonRpcMessage,
    JsonRpcRequest,
    parse_message,
)

StartProcess = Callable[[], ServerProcess]

_MOST_UNREAD_BYTES = 8 * 1024 * 1024  # of ours, in a server that does not read
_MOST_UNREQUESTED_BYTES = 64 * 1024 * 1024  # of its, between two answers
_MOST_INVALID_LINES = 100  # lines in a row that are no messages: some print where they should not
_LONGEST_OUTPUT = 500
_SHORTEST_SECRET = 4
_MASK = "•••"


class StdioTransport(StreamTransport):
    """`start` blocks until there is a process; Refused and OSError say that there is none.
    `secrets` never stand in what is told of a server's last words."""

    modern = True
    probe_s = 30.0  # its program starts meanwhile

    def __init__(self, start: StartProcess, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._start = start
        self._secrets = [one for one in secrets if len(one) >= _SHORTEST_SECRET]
        self._process: ServerProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.Task[None] | None = None

    async def ask(
        self, request: JsonRpcRequest, version: str, hear: MessageHandler
    ) -> JsonRpcMessage:
        try:
            return await super().ask(request, version, hear)
        except AnswerLost as problem:
            if request.method == DISCOVER_METHOD:  # some end where they know nothing of a question
                raise InvalidAnswer(str(problem)) from None
            raise

    async def _connect(self) -> None:
        await self._hang_up()
        self._process = await self._started()
        stream, self._writer = await asyncio.open_unix_connection(
            sock=self._process.stdio, limit=MOST_MESSAGE_BYTES
        )
        self._reader = asyncio.get_running_loop().create_task(self._read(stream, self._process))

    async def _started(self) -> ServerProcess:
        """In a thread, for it takes a moment. One that comes too late for us is ended."""
        starting = asyncio.get_running_loop().run_in_executor(None, self._start)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_close_late_process)
            raise
        except RunRefused as reason:
            raise UpstreamUnavailable(f"The MCP server was not started: {reason}.") from None
        except OSError as error:
            message = f"The MCP server was not started: the sandbox cannot be reached ({error})."
            raise UpstreamUnavailable(message) from None

    async def _write(self, message: bytes) -> None:
        writer = self._writer
        if writer is None or writer.is_closing() or not self._alive:
            raise UpstreamUnavailable("The MCP server has ended.")
        if writer.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            raise UpstreamUnavailable("The MCP server does not read what it is sent.")
        writer.write(message + b"\n")
        try:
            await writer.drain()
        except OSError:  # it may have read all of it before
            raise AnswerLost("The MCP server ended.") from None

    async def _hang_up(self) -> None:
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
            await self._lines(stream)
            problem = AnswerLost(await self._last_words(process))
        except UpstreamFailure as failure:
            problem = failure
        except OSError:
            problem = AnswerLost(await self._last_words(process))
        self._ended(stream_error(problem))
        if self._writer is not None:
            self._writer.transport.abort()
        await asyncio.get_running_loop().run_in_executor(None, process.close)  # and killed with it

    async def _lines(self, stream: asyncio.StreamReader) -> None:
        """Until its end. Raises Unusable."""
        garbage = unasked = 0
        while line := await _read_line(stream):
            unasked += len(line)
            try:
                message = parse_message(line)
            except InvalidAnswer:
                garbage += 1
                if garbage > _MOST_INVALID_LINES:
                    raise
            else:
                garbage = 0
                if await self._take(message):
                    unasked = 0
            if unasked > _MOST_UNREQUESTED_BYTES:
                raise InvalidAnswer("The MCP server says too much that nobody asked for.")

    async def _last_words(self, process: ServerProcess) -> str:
        reason, said = await asyncio.get_running_loop().run_in_executor(None, process.last_words)
        for secret in self._secrets:
            said = said.replace(secret, _MASK)
        told = quote_text(said.strip()[-_LONGEST_OUTPUT:])
        because = f": {reason}" if reason and reason != "it ended" else ""
        return f"The MCP server ended{because}." + (f" It said last: {told}" if told else "")


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """The next that is not empty; nothing at the end. Raises Unusable."""
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


def _close_late_process(starting: "asyncio.Future[ServerProcess]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
