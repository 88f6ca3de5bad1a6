"""Through which door, and with what program, somebody came: told once per request.

A record of an action that knows nothing of requests says it all the same.
"""

from contextvars import ContextVar
from typing import Any

_MOST = 200
_source: ContextVar[dict[str, Any] | None] = ContextVar("audit_source", default=None)


def came_by(transport: str, user_agent: str = "", client_request_id: str = "") -> None:
    """For what this thread does from now on, until somebody comes by another way."""
    plain = user_agent.replace("\x00", "")[:_MOST].encode("utf-8", "replace").decode()
    named = {"user_agent": plain, "client_request_id": client_request_id}
    _source.set({"transport": transport} | {name: value for name, value in named.items() if value})


def forget() -> None:
    _source.set(None)


def source() -> dict[str, Any] | None:
    return _source.get()
