"""Cursor pagination of the API's lists: `results`, `next` and `previous`.

`next` and `previous` are references relative to the server: a client that follows them keeps its
scheme and host, whatever a proxy in between has changed.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from django.db.models import Model
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from tools.web.keyset import read_value
from tools.web.query_parameters import BadQuery

MAX_PAGE_SIZE = 200
DEFAULT_PAGE_SIZE = 50
# What `ordering` may be, and the column of each: one that no two rows of the list share, so that a
# cursor is a place between two rows. Ids grow with time. The first is the order without `ordering`.
Orders = Mapping[str, str]
OLDEST_FIRST: Orders = {"created_at": "pk", "-created_at": "-pk"}
PAGING_PARAMETERS = [
    OpenApiParameter("cursor", OpenApiTypes.STR, description="From `next` or `previous`."),
    OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 200; 50 by default."),
]


def newest_first(field: str = "created_at") -> Orders:
    """By creation time, which the response has as `field`."""
    return {f"-{field}": "-pk", field: "pk"}


def by_name(field: str = "name") -> Orders:
    """The newest first, or by a name that is unique in the list."""
    return {**newest_first(), field: field, f"-{field}": f"-{field}"}


def paging_parameters(orders: Orders) -> list[OpenApiParameter]:
    """The query parameters of a list that has these orders."""
    order = OpenApiParameter(
        "ordering",
        OpenApiTypes.STR,
        enum=[*orders],
        default=next(iter(orders)),
        description="By what; `-` is descending.",
    )
    return [*PAGING_PARAMETERS, order]


@extend_schema_field({"type": "string", "format": "uri-reference"})
class PageReference(serializers.CharField):
    """The next or previous page: path and query, relative to the server."""


class CursorPages(CursorPagination):
    page_size = DEFAULT_PAGE_SIZE
    page_size_query_param = "page_size"
    max_page_size = MAX_PAGE_SIZE
    orders = newest_first()
    request: Request
    model: type[Model]

    def __init__(self, orders: Orders | None = None) -> None:
        self.orders = orders or type(self).orders

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        self.request, self.model = request, queryset.model
        return super().paginate_queryset(queryset, request, view)

    def get_page_size(self, request: Request) -> int:
        return parse_page_size(request)

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        usual = next(iter(self.orders))
        return (self.orders.get(request.query_params.get("ordering", usual), self.orders[usual]),)

    def decode_cursor(self, request: Request) -> Any:
        """Raises `BadQuery` for a cursor that `encode_cursor` did not write for this order."""
        text = request.query_params.get("cursor")
        if not text:
            return None
        try:
            said = parse_qs(b64decode(text.encode("ascii"), validate=True).decode("ascii"), True)
            position = said["p"][0]
            if said["o"] != [self.ordering[0]] or not {*said} <= {*"opr"}:
                raise cursor_error()
            read_value(self._field(), position)
        except (KeyError, ValueError):
            raise cursor_error() from None
        return Cursor(0, "r" in said, position)  # type: ignore[arg-type]  # positions are texts

    def encode_cursor(self, cursor: Any) -> str:
        said = {"o": self.ordering[0], **({"r": "1"} if cursor.reverse else {})}
        said["p"] = cursor.position
        return page_reference(self.request, b64encode(urlencode(said).encode()).decode())

    def _field(self) -> Any:
        name, meta = self.ordering[0].lstrip("-"), self.model._meta
        return meta.pk if name == "pk" else meta.get_field(name)


def parse_page_size(request: Request) -> int:
    """The number of rows of a page. Raises `BadQuery`."""
    raw = request.query_params.get("page_size", str(DEFAULT_PAGE_SIZE))
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or not 1 <= int(raw) <= MAX_PAGE_SIZE:
        raise BadQuery(
            f"page_size must be a whole number from 1 to {MAX_PAGE_SIZE}.", field="page_size"
        )
    return int(raw)


def cursor_error() -> BadQuery:
    return BadQuery("cursor is not one that this list gave out in this order.", field="cursor")


def page_reference(request: Request, cursor: str) -> str:
    """The address of this list at another cursor."""
    return str(replace_query_param(request.get_full_path(), "cursor", cursor))
