"""The entry point and client program of a caller: set once per request.

Records of actions that know nothing of requests contain it too.
"""

from contextvars import ContextVar
from typing import Any

_LONGEST_USER_AGENT = 200
_source: ContextVar[dict[str, Any] | None] = ContextVar("audit_source", default=None)


def set_source(transport: str, user_agent: str = "", client_request_id: str = "") -> None:
    """For all that this thread records from now on, until it is set again."""
    plain = user_agent.replace("\x00", "")[:_LONGEST_USER_AGENT].encode("utf-8", "replace").decode()
    named = {"user_agent": plain, "client_request_id": client_request_id}
    _source.set({"transport": transport} | {name: value for name, value in named.items() if value})


def clear_source() -> None:
    _source.set(None)


def source() -> dict[str, Any] | None:
    return _source.get()
