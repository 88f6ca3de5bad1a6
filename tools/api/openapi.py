"""`/api/schema/`: the API's document. It is made once for a release, when the web process starts,
and kept beside the data: a request computes nothing."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import etag
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

from config import errors

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
    """Before anybody asks."""
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
        response = errors.refused(request, 405, "The document is only read.")
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
    """Of the code: other files, or other times of them, are another release."""
    seen = "\n".join(sorted(_seen(settings.BASE_DIR)))
    return hashlib.sha256(seen.encode()).hexdigest()[:32]


def _seen(base: Path) -> Iterator[str]:
    for room in ("audit", "config", "tools"):
        for folder, _, names in os.walk(base / room):
            for name in names:
                if name.endswith(".py"):
                    file = Path(folder) / name
                    yield f"{file} {file.stat().st_mtime_ns}"
