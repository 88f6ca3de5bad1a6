"""Where OpenAPI documents are handed on to what reads them."""

from typing import Any, Protocol

from tools.definitions.dialects.documents import unreadable


class Draft(Protocol):
    """An operation as a definition; `definition` is empty where the flaws leave none."""

    @property
    def key(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> dict[str, Any]: ...
    @property
    def flaws(self) -> tuple[dict[str, str], ...]: ...


def drafts(document: Any, pick: list[Any]) -> list[Draft]:
    """One for each operation that was picked, of all where nothing was. Raises `Malformed`."""
    raise unreadable("is an OpenAPI document; this installation does not read them yet")
