"""`/api/schema/`: the API's OpenAPI document. It is generated once per release, when the web
process starts, and stored in the data directory: a request computes nothing."""

import fcntl
import hashlib
from functools import cache
from pathlib import Path

import drf_spectacular
import rest_framework
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import etag
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

from config.http import errors

MADE_BY = (rest_framework.__version__, drf_spectacular.__version__)
KINDS = {"json": "application/json", "yaml": "application/yaml; charset=utf-8"}


@cache
def document(kind: str) -> bytes:
    """The document as `json` or `yaml`, of the code that runs here."""
    place = settings.DATA_DIR / "openapi"
    place.mkdir(mode=0o700, exist_ok=True)
    made = place / f"{_fingerprint()}.{kind}"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one makes it
        if not made.exists():
            _make(place, made.stem)
        return made.read_bytes()


def make() -> None:
    """Generates the documents at startup, before the first request."""
    for kind in KINDS:
        document(kind)


@cache
def _tag(kind: str) -> str:
    return f'"{hashlib.sha256(document(kind)).hexdigest()}"'


class OpenApiDocument(View):
    """JSON unless `?format=yaml`, or `Accept`, asks for YAML."""

    @method_decorator(etag(lambda request: _tag(_kind(request))))
    def get(self, request: HttpRequest) -> HttpResponse:
        kind = _kind(request)
        response = HttpResponse(document(kind), content_type=KINDS[kind])
        response["Cache-Control"] = "public, max-age=300"
        return response

    def http_method_not_allowed(self, request: HttpRequest) -> HttpResponse:
        response = errors.error_response(request, 405, "The document is only read.")
        response["Allow"] = "GET, HEAD, OPTIONS"
        return response


def _kind(request: HttpRequest) -> str:
    wanted = request.GET.get("format", "")
    if wanted in KINDS:
        return wanted
    accepted = request.headers.get("Accept", "")
    return "yaml" if "yaml" in accepted and "json" not in accepted else "json"


def _make(place: Path, name: str) -> None:
    for old in place.glob("*.*"):
        old.unlink()
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    for kind, renderer in (("json", OpenApiJsonRenderer()), ("yaml", OpenApiYamlRenderer())):
        new = place / f"{name}.new"
        new.write_bytes(renderer.render(schema, renderer_context={}))
        new.rename(place / f"{name}.{kind}")


def _fingerprint() -> str:
    """Of the code and of what makes the document: other files, or other times of them, are another
    release."""
    rooms = (settings.BASE_DIR / room for room in ("audit", "config", "tools"))
    files = sorted(file for room in rooms for file in room.rglob("*.py"))
    seen = [*MADE_BY, *(f"{file} {file.stat().st_mtime_ns}" for file in files)]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:32]
