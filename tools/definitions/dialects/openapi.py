"""Where OpenAPI documents are handed on to what reads them."""

from typing import Any

from tools.definitions.dialects.documents import unreadable


def drafts(document: Any, pick: list[Any]) -> list[dict[str, Any]]:
    """A raw definition for each operation that was picked. Raises `Malformed`."""
    raise unreadable("is an OpenAPI document; this installation does not read them yet")
