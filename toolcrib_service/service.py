"""The base class of a service: its author writes one class with one method."""

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from typing import Any

type Answer = Any | Iterator[Any] | Awaitable[Any] | AsyncIterator[Any]


class ToolFailed(Exception):
    """The one failure whose message reaches the caller. Any other exception is only logged here."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class DynamicToolService:
    """Override `invoke`. The attributes say what the service is called and where it listens.

    `tools`, `default_groups` and `config_params` are what it announces of itself, in the form of
    specification S2; a service that an administrator registers needs none of them.
    """

    id: str = ""
    request_queue: str = ""
    response_queue: str = ""
    config_params: Sequence[dict[str, Any]] = ()
    tools: Sequence[dict[str, Any]] = ()
    default_groups: Sequence[str] | None = None

    def invoke(self, user: str, config: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """The answer, or chunks of it: return or yield, in a plain or an async function.

        What is no text becomes JSON text. `config` is what the tool's definition says, never what
        a model said.
        """
        raise NotImplementedError

    def descriptor(self) -> dict[str, Any]:
        """Of specification S2."""
        return {
            "id": self.id,
            "request-queue": self.requests_name(),
            "response-queue": self.response_queue or f"non-persistent://tg/response/{self.id}",
            "config-params": [dict(one) for one in self.config_params],
        }

    def requests_name(self) -> str:
        return self.request_queue or f"non-persistent://tg/request/{self.id}"
