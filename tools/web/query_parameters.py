"""Strict validation of the API's query parameters and preconditions: a misspelled filter that was
ignored would answer another question, and a precondition that was not compared would allow a
change that must be refused.

The parameters that a view knows are those that its `@extend_schema(parameters=…)` documents.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.views import APIView

from tools.definitions.texts.names import suggestion

Parameters = Mapping[str, OpenApiParameter]
_LONGEST_NAME = 40  # of a name that a response repeats
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PRECONDITIONS = ("If-Match", "If-None-Match")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class BadQuery(APIException):
    """An invalid query or precondition. `details` names the parameter or header."""

    status_code = 400

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


class QueryView(APIView):
    """A view that answers 400 to each parameter that the called method does not document, and to
    preconditions that it does not compare."""

    query: Mapping[str, Any] = {}  # the parameters that were given, each as a value of its type

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        method = request.method or ""
        if method in self.allowed_methods:  # or it is 405
            self.query = parse_query(request.query_params, documented_parameters(self, method))
            if method not in _SAFE and not self.takes_if_match(method):
                _refuse_preconditions(request)

    def takes_if_match(self, method: str) -> bool:
        """Whether the method answers 412 where the preconditions do not hold."""
        return False


def documented_parameters(view: APIView, method: str) -> Parameters:
    """The query parameters that a method of the view documents, by name."""
    found: dict[str, OpenApiParameter] = {}
    for name in view.http_method_names if method == "OPTIONS" else [method.lower()]:
        handler = getattr(type(view), "get" if name == "head" else name, None)
        if handler is not None:
            found |= _method_parameters(handler, type(view))  # type: ignore[arg-type]  # a class has a hash
    return found


def parse_query(query: QueryDict, parameters: Parameters) -> dict[str, Any]:
    """The given parameters as values. Raises `BadQuery` for the first invalid one."""
    return {name: _parse_parameter(name, query.getlist(name), parameters) for name in query}


def _refuse_preconditions(request: Request) -> None:
    """Raises `BadQuery`."""
    for name in _PRECONDITIONS:
        if name in request.headers:
            raise BadQuery(
                f"{name} is not compared here: what this request acts on has no ETag. Nothing was "
                "done; send it without.",
                header=name,
            )


@cache
def _method_parameters(handler: Callable[..., Any], view: type[APIView]) -> Parameters:
    schema_class = getattr(handler, "kwargs", {}).get("schema")
    if schema_class is None:
        return {}
    schema = schema_class()
    schema.view = view()
    schema.view.request = None
    schema.view.kwargs = {}
    schema.method = handler.__name__.upper()
    return {
        one.name: one
        for one in schema.get_override_parameters()
        if isinstance(one, OpenApiParameter) and one.location == OpenApiParameter.QUERY
    }


def _parse_parameter(name: str, texts: list[str], parameters: Parameters) -> Any:
    parameter = parameters.get(name)
    if parameter is None:
        raise _unknown_parameter(name[:_LONGEST_NAME], sorted(parameters))
    values = [_parse_value(name, text, parameter) for text in texts]
    if parameter.many:
        return values
    if len(values) > 1:
        raise BadQuery(f"{name} is given {len(values)} times; give it once.", field=name)
    return values[0]


def _unknown_parameter(name: str, known: list[str]) -> BadQuery:
    suggested = suggestion(name, known) or "."
    listed = f"Known here: {', '.join(known)}." if known else "This address takes none."
    return BadQuery(
        f"There is no query parameter {name!r} here{suggested} {listed}", field=name, known=known
    )


def _parse_value(name: str, text: str, parameter: OpenApiParameter) -> Any:
    kind = OpenApiTypes.BYTE if "\0" in text else parameter.type
    reader, wanted = _READERS.get(kind, _READERS[OpenApiTypes.STR])
    if parameter.enum:
        choices = [str(one) for one in parameter.enum]
        reader, wanted = choices.__contains__, f"one of {', '.join(choices)}"
        if reader(text):
            return text
    else:
        value = reader(text)
        if value is not None:
            return value
    raise BadQuery(f"{name} must be {wanted}.", field=name)


def parse_time(text: str) -> datetime | None:
    """A time with its zone, in UTC; None for anything else."""
    try:
        found = parse_datetime(text)
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _parse_int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _parse_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _parse_bool(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


_TEXT: tuple[Callable[[str], Any], str] = (str, "a text")
_BOOLEAN: tuple[Callable[[str], Any], str] = (_parse_bool, "true or false")
_NUMBER: tuple[Callable[[str], Any], str] = (_parse_int, "a whole number")
_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    OpenApiTypes.STR: _TEXT,
    OpenApiTypes.BYTE: (lambda text: None, "a text without NUL"),
    OpenApiTypes.BOOL: _BOOLEAN,
    bool: _BOOLEAN,
    OpenApiTypes.INT: _NUMBER,
    int: _NUMBER,
    OpenApiTypes.UUID: (_parse_uuid, "an id such as 01a20058-6eb6-7174-971b-ab1c8c3d25a2"),
    OpenApiTypes.DATE: (_parse_date, "a day such as 2026-01-31"),
    OpenApiTypes.DATETIME: (parse_time, "a time such as 2026-01-31T12:00:00Z"),
}
