"""Query filters that many lists share."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

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


def filtered[Rows: QuerySet[Any]](
    rows: Rows, query: Mapping[str, Any], columns: Mapping[str, str]
) -> Rows:
    """The rows that have in each column what the parameter beside it asks for, where it does."""
    asked = {column: query[name] for name, column in columns.items() if name in query}
    return rows.filter(**asked) if asked else rows


def in_period(column: str) -> dict[str, str]:
    """The columns of `PERIOD`, for `filtered`."""
    return {"since": f"{column}__gte", "until": f"{column}__lt"}
