"""How the body of a request arrives: with a length or chunked, whole, and in no other encoding.

Django reads as many bytes as `Content-Length` says, so that a chunked body would be empty to it and
one that was cut off complete. RFC 9112, 6 and 7.1.

The server tells no chunked body that was cut off from one that ended. So its content has to say
where it ends: JSON does, and a form in parts; anything else is sent with its length.
"""

import json
from collections.abc import Callable
from io import BytesIO, IOBase
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError

from config import errors

_AT_ONCE_BYTES = 64 * 1024
# Addresses that clients use before they are authenticated.
SMALL_BYTES = 16 * 1024
SMALL = frozenset({"/api/v1/tokens", "/csp-report"})
_CUT_OFF = "The connection ended before the body did. Nothing was done; send the request again."
_TOO_LARGE = "The body may have {} bytes at most."


class IncompleteBody(BadRequest):
    """Django lets its own error of a lost connection pass for an empty form; this one ends it."""


class WholeBody(IOBase):
    """A body of a known length. Raises `IncompleteBody` where its end comes before that."""

    def __init__(self, stream: IO[bytes], length: int) -> None:
        self._stream, self._left = stream, length

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        found = bytearray()
        while len(found) < wanted:
            found += self._some(self._stream.read, wanted - len(found))
        return bytes(found)

    def readline(self, size: int | None = -1, /) -> bytes:
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        return self._some(self._stream.readline, wanted) if wanted else b""

    def _some(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            piece = read(size)
        except OSError as error:
            raise IncompleteBody(_CUT_OFF) from error
        if not piece:
            raise IncompleteBody(_CUT_OFF)
        self._left -= len(piece)
        return piece


class RequestBodies:
    """Reads every body but uploads, which are read as a form is, before anything else happens."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _refusal(request) or self.get_response(request)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    meta: dict[str, Any] = request.META
    if meta.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in {"", "identity"}:
        response = errors.refused(request, 415, "Send the body without Content-Encoding.")
        response["Accept-Encoding"] = "identity"
        return response
    try:
        if "HTTP_TRANSFER_ENCODING" in meta:
            return _read_chunked(request, meta)
        return _read_sized(request, meta)
    except RequestDataTooBig:
        return errors.refused(request, 413, _TOO_LARGE.format(_most_bytes(request)))
    except (IncompleteBody, UnreadablePostError):
        return errors.refused(request, 400, _CUT_OFF)


def _most_bytes(request: HttpRequest) -> int:
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return min(most, SMALL_BYTES) if request.path in SMALL else most


def _read_chunked(request: HttpRequest, meta: dict[str, Any]) -> HttpResponse | None:
    if meta["HTTP_TRANSFER_ENCODING"].strip().lower() != "chunked":
        return errors.refused(
            request, 411, "Send the body with a Content-Length, or chunked and nothing else."
        )
    if meta.get("CONTENT_LENGTH"):
        return errors.refused(request, 400, "A chunked body has no Content-Length.")
    content = _up_to(meta["wsgi.input"], _most_bytes(request))
    ended = _has_ended(request, content)
    if ended is None:
        return errors.refused(request, 411, "Send this type of content with a Content-Length.")
    if not ended:
        raise IncompleteBody(_CUT_OFF)
    meta["CONTENT_LENGTH"] = str(len(content))
    request._stream = BytesIO(content)
    return None


def _has_ended(request: HttpRequest, content: bytes) -> bool | None:
    """None where the content does not say."""
    if (request.content_type or "").endswith("json"):
        try:
            json.loads(content or b"{}")
        except (ValueError, RecursionError):
            return False
        return True
    if request.content_type == "multipart/form-data":
        boundary = (request.content_params or {}).get("boundary", "").encode("latin-1", "replace")
        return bool(boundary) and content.rstrip().endswith(b"--" + boundary + b"--")
    return None if content else True


def _up_to(stream: IO[bytes], most: int) -> bytes:
    content = bytearray()
    try:
        while piece := stream.read(min(_AT_ONCE_BYTES, most + 1 - len(content))):
            content += piece
            if len(content) > most:
                raise RequestDataTooBig
    except OSError as error:
        raise IncompleteBody(_CUT_OFF) from error
    return bytes(content)


def _read_sized(request: HttpRequest, meta: dict[str, Any]) -> HttpResponse | None:
    length = str(meta.get("CONTENT_LENGTH") or "0")
    if not length.isascii() or not length.isdigit():
        return errors.refused(request, 400, "Content-Length must be a whole number.")
    request._stream = WholeBody(meta["wsgi.input"], int(length))  # type: ignore[assignment]
    if request.content_type != "multipart/form-data":
        if int(length) > _most_bytes(request):
            raise RequestDataTooBig
        request.body  # noqa: B018  # kept there for everybody who reads it
    return None
