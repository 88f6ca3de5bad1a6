"""How the body of a request arrives: with a length or chunked, whole, in time, and in no other
encoding. The web server's application reads it (config/asgi.py); here a request whose body is not
as it should be is refused before anything happens. RFC 9112, 6 and 7.1.
"""

from collections.abc import Callable
from enum import Enum
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import InMemoryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest, HttpResponse

from config.http import errors

# Addresses that clients use before they are authenticated.
SMALL_BYTES = 16 * 1024
SMALL_PATHS = frozenset({"/api/v1/tokens", "/csp-report"})


class RequestBodyFlaw(Enum):
    """Why a body is not whole."""

    CUT_OFF = "cut off"
    TOO_LARGE = "too large"
    SLOW = "slow"
    NO_ROOM = "no room"


def max_body_bytes(path: str, content_type: str) -> int:
    """A form with files may be larger, so that its page can say which file is too large."""
    most: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if path in SMALL_PATHS:
        return min(most, SMALL_BYTES)
    return most * 2 if content_type.startswith("multipart/form-data") else most


class RequestBodies:
    """Refuses bodies that are not whole, and keeps those that are, but uploads: these are read as a
    form is."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _refusal(request) or self.get_response(request)


class BoundedUploads(FileUploadHandler):
    """A file beyond the bound is cut there, and the view that reads it finds it too large."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.left = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        self.content = BytesIO()

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.content = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        kept = raw_data[: max(self.left, 0)]
        self.left -= len(kept)
        self.content.write(kept)

    def file_complete(self, file_size: int) -> InMemoryUploadedFile:
        self.content.seek(0)
        return InMemoryUploadedFile(
            self.content, self.field_name, self.file_name or "", self.content_type or "",
            self.content.getbuffer().nbytes, self.charset, self.content_type_extra,
        )  # fmt: skip


def _refusal(request: HttpRequest) -> HttpResponse | None:
    meta: dict[str, Any] = request.META
    if meta.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in {"", "identity"}:
        response = errors.error_response(request, 415, "Send the body without Content-Encoding.")
        response["Accept-Encoding"] = "identity"
        return response
    if meta.get("HTTP_TRANSFER_ENCODING", "chunked").strip().lower() != "chunked":
        return errors.error_response(
            request, 411, "Send the body with a Content-Length, or chunked and nothing else."
        )
    most = max_body_bytes(request.path, request.content_type or "")
    flaw = meta.get("toolcrib.flaw") or _size_flaw(request, most)
    if flaw is None:
        return None
    status, sentence = _FLAW_ANSWERS[flaw]
    response = errors.error_response(request, status, sentence.format(most))
    if flaw == RequestBodyFlaw.NO_ROOM:
        response["Retry-After"] = "1"
    return response


def _size_flaw(request: HttpRequest, most: int) -> RequestBodyFlaw | None:
    """Where another server than ours calls Django."""
    if request.content_type == "multipart/form-data":
        return None
    try:
        return RequestBodyFlaw.TOO_LARGE if len(request.body) > most else None
    except RequestDataTooBig:
        return RequestBodyFlaw.TOO_LARGE


_FLAW_ANSWERS = {
    RequestBodyFlaw.CUT_OFF: (
        400, "The connection ended before the body did. Nothing was done; send the request again.",
    ),
    RequestBodyFlaw.TOO_LARGE: (413, "The body may have {} bytes at most."),
    RequestBodyFlaw.SLOW: (
        408, "The body did not arrive in time. Nothing was done; send the request again."
    ),
    RequestBodyFlaw.NO_ROOM: (
        503, "Too many bodies of your address arrive at once. Try again in a moment."
    ),
}  # fmt: skip
