"""Pagination of in-memory lists: of the catalog, sorted or ranked. A cursor is a name, so a page
keeps its position while tools are added and removed."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from tools.catalog.snapshot import CatalogTool
from tools.errors import Malformed
from tools.web.cursor_pagination import PageReference, cursor_error, page_reference, parse_page_size

AGENT = OpenApiParameter("agent", OpenApiTypes.STR, description="An agent's slug.")
TOOL = OpenApiParameter("tool", OpenApiTypes.STR, description="A tool's name.")
SESSION = OpenApiParameter("session", OpenApiTypes.UUID, description="A session's id.")
IN_SESSION = OpenApiParameter(
    "session", OpenApiTypes.STR, description="A session of the caller: as the catalog is in it."
)
PERIOD = [
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="From this time on."),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Before this time."),
]


def filter_rows[Rows: QuerySet[Any]](
    rows: Rows, query: Mapping[str, Any], columns: Mapping[str, str]
) -> Rows:
    """The rows that have in each column what the parameter beside it asks for, where it does."""
    asked = {column: query[name] for name, column in columns.items() if name in query}
    return rows.filter(**asked) if asked else rows


def period_columns(column: str) -> dict[str, str]:
    """The columns of `PERIOD`, for `filtered`."""
    return {"since": f"{column}__gte", "until": f"{column}__lt"}


BY_NAME = OpenApiParameter(
    "ordering",
    OpenApiTypes.STR,
    enum=["name", "-name"],
    description="By what; `-` is descending.",
)


class Page(serializers.Serializer[Any]):
    next = PageReference(allow_null=True)
    previous = PageReference(allow_null=True)


def tool_key(tool: CatalogTool) -> str:
    return tool.name.lower()


def paginate_by_key[Item](
    request: Request, items: Sequence[Item], key: Callable[[Item], str]
) -> dict[str, Any]:
    """One page of what is sorted by a key that no two of it share, and the pages beside it."""
    keys = [key(item) for item in items]
    descending = request.query_params.get("ordering") == "-name"
    if descending:
        items, keys = items[::-1], keys[::-1]
    backwards, name = _parse_cursor(request)
    size, start = parse_page_size(request), 0
    if name is not None:
        before = sum(one > name if descending else one < name for one in keys)
        start = max(0, before - parse_page_size(request)) if backwards else before + (name in keys)
    return _build_page(request, items, key, start, size)


def paginate_tools(request: Request, tools: Sequence[CatalogTool]) -> dict[str, Any]:
    """Of tools that are sorted by name."""
    return paginate_by_key(request, tools, tool_key)


def paginate_ranked_tools(request: Request, tools: Sequence[CatalogTool]) -> dict[str, Any]:
    """The same for tools in the order of their rank. A page begins next to the tool that its cursor
    names; raises `Malformed` when that tool is not found any more."""
    size, start = parse_page_size(request), 0
    backwards, name = _parse_cursor(request)
    if name is not None:
        at = next((at for at, tool in enumerate(tools) if tool_key(tool) == name), None)
        if at is None:
            raise Malformed("The list has changed since the cursor was given. Begin it again.")
        start = max(0, at - size) if backwards else at + 1
    return _build_page(request, tools, tool_key, start, size)


def _build_page[Item](
    request: Request, items: Sequence[Item], key: Callable[[Item], str], start: int, size: int
) -> dict[str, Any]:
    page = items[start : start + size]
    more = start + size < len(items)
    return {
        "results": page,
        "next": _cursor_address(request, "after", key(page[-1])) if page and more else None,
        "previous": _cursor_address(request, "before", key(page[0])) if page and start else None,
    }


def _parse_cursor(request: Request) -> tuple[bool, str | None]:
    raw = request.query_params.get("cursor")
    if not raw:
        return False, None
    try:
        side, colon, name = base64.urlsafe_b64decode(raw.encode("ascii")).decode().partition(":")
    except (binascii.Error, UnicodeError, ValueError):
        raise cursor_error() from None
    if side not in {"after", "before"} or not colon:
        raise cursor_error()
    return side == "before", name


def _cursor_address(request: Request, side: str, key: str) -> str:
    return page_reference(request, base64.urlsafe_b64encode(f"{side}:{key}".encode()).decode())
