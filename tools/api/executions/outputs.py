"""`/api/v1/executions/{id}/output`: the output of a call, as bytes of its own type, in ranges."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.content_types import JSONRenderer
from tools.api.common.event_streams import CallerConcurrency
from tools.api.common.serializer_fields import Strict, Text
from tools.api.common.views import CallerView
from tools.definitions.callers import Caller, Scope
from tools.errors import ToolcribError, Unavailable
from tools.execution import answer, cache, outputs
from tools.execution.outputs import OutputContent
from tools.web.reauthentication import Proof, by_method

PIECE = 256 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
# A slow reader keeps a thread, though never a connection to the database.
_slots = CallerConcurrency(settings.WAITING_PLACES)


class InvalidationBody(Strict):
    """Neither of the two is the whole organization."""

    tool = Text(required=False, max_length=128)
    group = Text(required=False, max_length=100)


class InvalidationAnswer(serializers.Serializer[Any]):
    forgotten = serializers.IntegerField()


class BadRange(ToolcribError):
    """The output is shorter than where the range begins."""

    code, http_status = "range_not_satisfiable", 416


class ExecutionOutput(CallerView):
    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """An output has one type, whatever the client would rather have."""
        return JSONRenderer(), JSONRenderer.media_type

    @extend_schema(
        operation_id="get_execution_output",
        responses={
            (200, "application/json"): OpenApiTypes.ANY,
            (200, "text/plain"): OpenApiTypes.STR,
            (206, "application/json"): OpenApiTypes.BINARY,
            (206, "text/plain"): OpenApiTypes.BINARY,
            304: None,
            409: None,
            410: None,
            416: None,
        },
        parameters=[
            OpenApiParameter("Range", OpenApiTypes.STR, OpenApiParameter.HEADER),
            OpenApiParameter("If-Range", OpenApiTypes.STR, OpenApiParameter.HEADER),
            OpenApiParameter("If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER),
        ],
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponse | StreamingHttpResponse:
        """The whole output of a call that succeeded, a text as text and anything else as JSON.

        One range of bytes may be asked for; the ETag is the output's digest.
        """
        content = outputs.load_content(answer.find_execution(self.caller, execution_id))
        if _client_has_output(request, content):
            return _add_headers(HttpResponse(status=304), content)
        try:
            start, end = _parse_range(request, content)
        except BadRange as error:
            response = self.handle_exception(error)
            response["Content-Range"] = f"bytes */{content.size}"
            return response
        return _add_headers(_stream_range(self.caller, content, start, end), content, execution_id)


def _stream_range(
    caller: Caller, content: OutputContent, start: int, end: int
) -> StreamingHttpResponse:
    if not _slots.acquire(caller):
        raise Unavailable("Too many outputs are being read. Try again in a moment.")
    whole = (start, end) == (0, content.size)
    response = StreamingHttpResponse(
        _Pieces(caller, content, start, end),
        status=200 if whole else 206,
        content_type=content.type,
    )
    response["Content-Length"] = str(end - start)
    if not whole:
        response["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
    return response


def _add_headers(response: Any, content: OutputContent, execution_id: UUID | None = None) -> Any:
    """Prevents a browser from rendering a tool's output as a page of this site."""
    response["ETag"] = _etag(content)
    response["Accept-Ranges"] = "bytes"
    response["Cache-Control"] = "private, no-cache"
    response["X-Content-Type-Options"] = "nosniff"
    if execution_id is not None:
        ending = "txt" if content.type == outputs.TEXT else "json"
        response["Content-Disposition"] = f'attachment; filename="{execution_id}.{ending}"'
    return response


def _etag(content: OutputContent) -> str:
    return f'"{content.digest}"'


def _client_has_output(request: Request, content: OutputContent) -> bool:
    given = request.headers.get("If-None-Match", "")
    return given.strip() == "*" or _etag(content) in [one.strip() for one in given.split(",")]


def _parse_range(request: Request, content: OutputContent) -> tuple[int, int]:
    """From where to before where. What is no single range is ignored, as RFC 9110 allows."""
    everything, only_if = (0, content.size), request.headers.get("If-Range")
    found = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if found is None or found.groups() == ("", "") or only_if not in {None, _etag(content)}:
        return everything
    first, last = found.groups()
    if not first:
        start, end = max(0, content.size - int(last)), content.size
    else:
        start = int(first)
        end = min(content.size, int(last) + 1) if last else content.size
        if last and int(last) < start:
            return everything
    if start >= end:
        raise BadRange(f"The output has {content.size} bytes.", bytes=content.size)
    return start, end


class _Pieces:
    """The bytes of the range. Its slot is released at the end, also when it is not read."""

    def __init__(self, caller: Caller, content: OutputContent, start: int, end: int) -> None:
        self._caller = caller
        self._content, self._at, self._end = content, start, end
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._at >= self._end:
            raise StopIteration
        piece = self._content.piece(self._at, min(PIECE, self._end - self._at))
        if self._content.inline is None:
            connection.close()
        self._at += len(piece)
        return piece

    def close(self) -> None:
        if self._open:
            self._open = False
            _slots.release(self._caller)


class CacheInvalidation(CallerView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="invalidate_cache",
        request=InvalidationBody,
        responses=InvalidationAnswer,
    )
    def post(self, request: Request) -> Response:
        """Forget the results of a tool, of a group's tools, or of the organization."""
        self.require("change_tool")
        wanted = self.body(InvalidationBody)
        count = cache.invalidate(organization=self.organization, by=self.actor, **wanted)
        return Response({"forgotten": count})
