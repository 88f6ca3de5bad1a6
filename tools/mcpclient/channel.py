"""What carries messages to a server and back, whatever it is made of."""

from collections.abc import Callable
from typing import Protocol

from tools.mcpclient.messages import JsonRpcMessage, JsonRpcRequest

MessageHandler = Callable[
    [JsonRpcMessage], bytes | None
]  # what the server said by itself; what we answer to it
PROBE_TIMEOUT_S = 10.0  # a server that knows nothing of the newest protocol may not answer at all


class McpTransport(Protocol):
    modern: bool  # whether the newest protocol may be tried on it
    probe_s: float  # and for how long its answer is waited for

    async def ask(
        self, request: JsonRpcRequest, version: str, hear: MessageHandler
    ) -> JsonRpcMessage:
        """The answer. Sets `request.sent`. Raises UpstreamFailure."""

    async def tell(self, message: bytes, version: str) -> None:
        """A notification. Raises UpstreamFailure."""

    async def abandon(self, request: JsonRpcRequest, version: str) -> None:
        """Nobody waits for the answer any more. Raises UpstreamFailure."""

    def begin(self) -> None:
        """Forget the session there was."""

    async def close(self, version: str) -> None:
        """End the session and let go of everything. Raises nothing."""
