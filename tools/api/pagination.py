"""Cursor pages: `results`, `next`, `previous`."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from tools.catalog.registry import CatalogTool
from tools.errors import Malformed

MOST = 200


class CursorPages(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = MOST
    ordering = "-pk"

    def get_page_size(self, request: Request) -> int:
        return _size(request.query_params.get("page_size"))

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise Malformed("cursor is not one this list gave out.") from None


def page_of_tools(request: Request, tools: Sequence[CatalogTool]) -> dict[str, Any]:
    """One page of tools that are sorted by name, and the addresses of the pages beside it.

    The cursor is a name, so a page stays where it is while tools come and go.
    """
    size = _size(request.query_params.get("page_size"))
    backwards, name = _cursor(request.query_params.get("cursor"))
    keys = [tool.name.lower() for tool in tools]
    start = 0
    if name is not None and backwards:
        start = max(0, sum(key < name for key in keys) - size)
    elif name is not None:
        start = sum(key <= name for key in keys)
    page = tools[start : start + size]
    more = start + size < len(tools)
    return {
        "results": page,
        "next": _address(request, "after", page[-1].name) if page and more else None,
        "previous": _address(request, "before", page[0].name) if page and start else None,
    }


def page_of_ranked(request: Request, tools: Sequence[CatalogTool]) -> dict[str, Any]:
    """The same of tools that stand in the order of their rank. A page begins beside the tool that
    its cursor names; raises `Malformed` when that one is not found any more."""
    size = _size(request.query_params.get("page_size"))
    backwards, name = _cursor(request.query_params.get("cursor"))
    start = 0
    if name is not None:
        at = next((at for at, tool in enumerate(tools) if tool.name.lower() == name), None)
        if at is None:
            raise Malformed("The list has changed since the cursor was given. Begin it again.")
        start = max(0, at - size) if backwards else at + 1
    page, more = tools[start : start + size], start + size < len(tools)
    return {
        "results": page,
        "next": _address(request, "after", page[-1].name) if page and more else None,
        "previous": _address(request, "before", page[0].name) if page and start else None,
    }


def _size(raw: str | None) -> int:
    if raw is None:
        return CursorPages.page_size
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or not 1 <= int(raw) <= MOST:
        raise Malformed(f"page_size must be a whole number from 1 to {MOST}.")
    return int(raw)


def _cursor(raw: str | None) -> tuple[bool, str | None]:
    if not raw:
        return False, None
    try:
        side, _, name = base64.urlsafe_b64decode(raw.encode()).decode().partition(":")
    except (binascii.Error, UnicodeError, ValueError):
        raise Malformed("cursor is not one this list gave out.") from None
    if side not in {"after", "before"}:
        raise Malformed("cursor is not one this list gave out.")
    return side == "before", name


def _address(request: Request, side: str, name: str) -> str:
    cursor = base64.urlsafe_b64encode(f"{side}:{name.lower()}".encode()).decode()
    return replace_query_param(request.build_absolute_uri(), "cursor", cursor)
