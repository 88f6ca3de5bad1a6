"""Extends the OpenAPI document beyond what drf-spectacular derives from the views."""

import fcntl
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import drf_spectacular
import rest_framework
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import etag
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers

from config.http import errors
from tools.api.common.errors import ErrorAnswer, ProblemAnswer
from tools.web.reauthentication import Proof

ERRORS = {
    "400": "A field or parameter is missing, malformed or unknown; `details` names each one.",
    "401": "No token, or one that is not valid.",
    "403": "A gate refused it, or the caller lacks the scope or permission; `code` says which.",
    "404": "Not there, or not the caller's: what the address, the query, the body or "
    "`X-Organization` names.",
    "406": "It is not made in any type that `Accept` names.",
    "409": "It conflicts with what is there, or with what is done at this moment.",
    "410": "It was there, and is kept no longer.",
    "412": "It is not what `If-Match` names any more; nothing was changed.",
    "413": "The body is too large.",
    "415": "The body must be of a type that is named here, in UTF-8.",
    "416": "There is less of it than where the range begins; `Content-Range` says how much.",
    "422": "The idempotency key was used for another body.",
    "429": "Too often; `Retry-After` says when to try again.",
    "503": "Not possible right now; `Retry-After` says when to try again.",
}
OF_EVERY_CALL = ("400", "401", "403", "404", "406", "503")
OF_A_BODY = ("413", "415")
READING = ("GET", "HEAD")
CHANGING = ("PUT", "PATCH", "DELETE")
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_COUNT: dict[str, Any] = {"schema": {"type": "string", "pattern": "^[0-9]+$"}}
_TRUE: dict[str, Any] = {"schema": {"type": "string", "enum": ["true"]}}
# Response headers. Optional ones are present only where their descriptions say.
HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-Id": {
        "schema": {"type": "string", "format": "uuid"},
        "required": True,
        "description": "Names the request in log, evidence and errors.",
    },
    "X-Client-Request-Id": _TEXT
    | {"description": "The request's own `X-Request-Id`, where it had one."},
    "ETag": _TEXT
    | {"required": True, "description": "Of what a change of it can write; for `If-Match`."},
    "Location": {
        "schema": {"type": "string", "format": "uri-reference"},
        "required": True,
        "description": "Where it is.",
    },
    "RateLimit": _TEXT | {"description": "Where the call counts: what is left, and for how long."},
    "RateLimit-Policy": _TEXT | {"description": "Where the call counts: the limit per minute."},
    "Retry-After": _COUNT | {"description": "In how many seconds to try again."},
    "WWW-Authenticate": _TEXT | {"description": "How to say who calls."},
    "Idempotent-Replayed": _TRUE
    | {"description": "The `Idempotency-Key` was known: this was answered before."},
    "Idempotent-Replay-Withheld": _TEXT
    | {
        "description": "Members that the first answer had, and a replay this late has not. `*`: "
        'a large answer is not kept, and the body is `{"withheld": "large", "location": '
        "…}`."
    },
    "Content-Range": _TEXT | {"required": True, "description": "Which bytes of how many."},
    "Accept-Ranges": {"schema": {"type": "string", "enum": ["bytes"]}},
    "Content-Disposition": _TEXT | {"description": "The name of the file that it is."},
}
_OF_ERRORS = {
    "401": ("WWW-Authenticate",),
    "409": ("Retry-After", "Idempotent-Replayed"),
    "416": ("Content-Range",),
    "422": ("Idempotent-Replayed",),
    "429": ("Retry-After", "RateLimit", "RateLimit-Policy"),
    "503": ("Retry-After",),
}
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]{1,255}$"},
    OpenApiParameter.HEADER,
    description="1 to 255 visible ASCII characters. The same key and request within a day: done "
    "once, and answered the same, with `Idempotent-Replayed: true`.",
)
_TAGS = {"type": "string", "pattern": r'^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$'}
IF_MATCH = OpenApiParameter(
    "If-Match",
    _TAGS,
    OpenApiParameter.HEADER,
    description="The `ETag` under which it was read, several, or `*`. Where it is another by "
    "now, 412 and nothing is changed; without the header nothing is compared.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of what the client has; where it is that still, 304 without a body.",
)


def _references(kind: str, names: Mapping[str, str]) -> dict[str, Any]:
    """To components, under the name that each has here."""
    return {here: {"$ref": f"#/components/{kind}/{name}"} for here, name in names.items()}


def _headers(*names: str) -> dict[str, Any]:
    every = ("X-Request-Id", "X-Client-Request-Id", *names)
    return _references("headers", {name: name for name in every})


def _asks_in_session(operation: Mapping[str, Any]) -> bool:
    """The session may have ended, or contradict other parameters."""
    return any(one["name"] == "session" for one in operation.get("parameters", ()))


def _error(status: str, text: str) -> dict[str, Any]:
    bodies = {"application/json": ErrorAnswer, "application/problem+json": ProblemAnswer}
    return {
        "description": text,
        "headers": _headers(*_OF_ERRORS.get(status, ())),
        "content": {
            kind: {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}
            for kind, body in bodies.items()
        },
    }


def add_components(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """What all operations share, once (`POSTPROCESSING_HOOKS`)."""
    components = result["components"]
    components["headers"] = HEADERS
    components["responses"] = {f"Error{one}": _error(one, text) for one, text in ERRORS.items()}
    forbidden = components["responses"]["Error403"]["content"]["application/json"]
    forbidden["examples"] = {"AGateSaidNo": {"summary": "A gate said no", "value": _REFUSAL}}
    for schema in components["schemas"].values():
        if "oneOf" in schema and "discriminator" not in schema:
            schema["anyOf"] = schema.pop("oneOf")  # nothing says that only one of them fits
    return result


class ApiSchema(AutoSchema):
    """An operation with the parameters, headers and errors that it shares with others."""

    @property
    def keyed(self) -> bool:
        """Whether it takes an `Idempotency-Key`."""
        return self.method == "POST" and getattr(self.view, "takes_key", False)

    @property
    def conditional(self) -> bool:
        """Whether it takes an `If-Match`."""
        view: Any = self.view
        return bool(view.takes_if_match(self.method))

    @property
    def tagged(self) -> set[str]:
        """The answers that come with an `ETag`."""
        if not self._represents:
            return set()
        if self.method == "GET":
            one = getattr(self, "path", "").endswith("}")  # it has none outside the generator
            return {"200"} if one else set()
        if self.conditional:
            return {"200"} if getattr(self.view, "answers_resource", False) else set()
        makes = self.method == "POST" and not getattr(self.view, "secret", ())
        return {"201"} if makes else set()

    @property
    def _represents(self) -> bool:
        return bool(getattr(self.view, "has_representation", False))

    def _get_serializer_field_meta(self, field: Any, direction: Any) -> dict[str, Any]:
        meta: dict[str, Any] = super()._get_serializer_field_meta(  # type: ignore[no-untyped-call]
            field, direction
        )
        if isinstance(field, serializers.JSONField):
            meta.pop("nullable", None)  # any value is one of them
        return meta

    def get_override_parameters(self) -> list[Any]:
        tagged_read = self.method == "GET" and self.tagged
        return [
            *([IDEMPOTENCY_KEY] if self.keyed else []),
            *([IF_MATCH] if self.conditional else []),
            *([IF_NONE_MATCH] if tagged_read else []),
        ]

    def get_operation(self, *args: Any, **options: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **options)
        if operation is None:
            return None
        for body in (ErrorAnswer, ProblemAnswer):
            self.resolve_serializer(body, "response")
        answers = operation["responses"]
        good = {status: one for status, one in answers.items() if status not in ERRORS}
        counted = self.method in READING or "429" in answers
        for status, answer in good.items():
            shared = _headers(*self._headers_of(status, counted))
            answer["headers"] = shared | answer.get("headers", {})
        if self.method == "GET" and self.tagged:
            good["304"] = {"description": "It is what the client has.", "headers": _headers("ETag")}
        if getattr(self.view, "proof", {}).get(self.method) is Proof.ALWAYS:
            good["302"] = {
                "description": "A browser whose person has proved too little lately: to the page "
                "that asks for it.",
                "headers": _headers("Location"),
            }
        errors = sorted({*answers.keys() - good.keys(), *self._errors(operation)})
        operation["responses"] = good | _references(
            "responses", {status: f"Error{status}" for status in errors}
        )
        return operation

    def _headers_of(self, status: str, counted: bool) -> list[str]:
        return [
            *(["ETag"] if status in self.tagged else []),
            *(["Location"] if status in {"201", "202"} else []),
            *(["RateLimit", "RateLimit-Policy"] if counted else []),
            *(["Idempotent-Replayed", "Idempotent-Replay-Withheld"] if self.keyed else []),
        ]

    def _errors(self, operation: dict[str, Any]) -> set[str]:
        """Those that follow from what the operation is; a view names others as `404: None`."""
        found = {*OF_EVERY_CALL}
        if self.method in READING:
            found.add("429")
        if self.keyed or self.method in CHANGING or _asks_in_session(operation):
            found.add("409")
        if "requestBody" in operation:
            found.update(OF_A_BODY)
        if self.conditional:
            found.add("412")
        if self.keyed:
            found.add("422")
        return found

    def get_operation_id(self) -> str:
        """Where a view serves two addresses and names neither: `…/tools/{name}/enable`."""
        resource, verb = self.path.split("/")[3], self.path.rsplit("/", 1)[1]
        return f"{verb}_{resource.removesuffix('s')}".replace("-", "_")

    def get_summary(self) -> str:
        return str(self.get_operation_id()).replace("_", " ").capitalize()


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tools.api.common.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "tcr_…",
            "description": "An agent's token, or a person's.",
        }


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tools.api.common.authentication.PersonAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "toolcrib_session",
            "description": "The browser's session, with its CSRF token for everything but reading.",
        }


CODE_TOOL = OpenApiExample(
    "A Python tool",
    request_only=True,
    value={
        "name": "word_count",
        "type": "code",
        "description": "Counts the words of a text.",
        "category": "CodeExecution",
        "parameters": [
            {"name": "text", "type": "String", "description": "What to count.", "required": True}
        ],
        "output_schema": {
            "type": "object",
            "properties": {"words": {"type": "integer"}},
            "required": ["words"],
        },
        "constraints": {"max_execution_time": "PT5S", "allow_side_effects": False},
        "delivery": "pure",
        "group": ["text"],
        "implementation": {
            "language": "python",
            "source": "def main(parameters):\n"
            "    return {'words': len(parameters['text'].split())}\n",
        },
    },
)
PROFILE = OpenApiExample(
    "A tool that asks one host",
    request_only=True,
    value={
        "name": "weather",
        "allow_network": True,
        "allowed_hosts": [{"host": "api.weather.example", "methods": ["GET"], "paths": ["/v1"]}],
        "max_memory_bytes": 134_217_728,
        "max_cpu_time": "PT10S",
        "max_processes": 8,
    },
)
CALL_OF_TOOL = OpenApiExample(
    "Read a file",
    request_only=True,
    value={
        "parameters": {"path": "notes.txt"},
        "group": ["read-only"],
        "options": {"timeout": "PT10S", "wait_s": 30},
    },
)
CALL = OpenApiExample(
    "Read a file",
    request_only=True,
    value={"tool_name": "read_file", **CALL_OF_TOOL.value},
)
_REFUSAL = {
    "code": "group_not_granted",
    "message": "The request names groups the caller was not granted: write. "
    "Leave them out or ask an administrator.",
    "details": {"gate": "granted_groups", "groups": ["write"]},
    "request_id": "01a20058-6eb6-7174-971b-ab1c8c3d25a2",
    "status": "PermissionDenied",
    "execution_id": "01a20058-5057-74ee-9db0-8736132866b7",
}
_RESULT: dict[str, Any] = {
    "execution_id": "01a20058-5057-74ee-9db0-8736132866b7",
    "status": "Success",
    "input": {"tool_name": "read_file", "parameters": {"path": "notes.txt"}},
    "output": {"content": "hello", "size": 5, "encoding": "utf-8"},
    "observation": '{"content": "hello", "size": 5, "encoding": "utf-8"}',
    "error_code": None,
    "error_message": None,
    "cached": False,
    "cost": "0",
    "metadata": {
        "execution_id": "01a20058-5057-74ee-9db0-8736132866b7",
        "tool_version": "1.0.0",
        "started_at": "2026-01-31T12:00:00.010Z",
        "completed_at": "2026-01-31T12:00:00.022Z",
        "duration_ms": 12.4,
        "output_size": 52,
        "sandbox_id": "4711-1",
        "execution_metrics": {"peak_memory_bytes": 9_437_184, "cpu_time_ms": 3.1},
    },
    "session": None,
    "confirmation": None,
    "warnings": [],
}
RESULT = OpenApiExample("It ran", response_only=True, status_codes=["200"], value=_RESULT)


MADE_BY = (rest_framework.__version__, drf_spectacular.__version__)
KINDS = {"json": "application/json", "yaml": "application/yaml; charset=utf-8"}


@cache
def openapi_document(kind: str) -> bytes:
    """The document as `json` or `yaml`, of the code that runs here."""
    place = settings.DATA_DIR / "openapi"
    place.mkdir(mode=0o700, exist_ok=True)
    made = place / f"{_release_fingerprint()}.{kind}"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one makes it
        if not made.exists():
            _write_documents(place, made.stem)
        return made.read_bytes()


def make_documents() -> None:
    """Generates the documents at startup, before the first request."""
    for kind in KINDS:
        openapi_document(kind)


@cache
def _document_etag(kind: str) -> str:
    return f'"{hashlib.sha256(openapi_document(kind)).hexdigest()}"'


class OpenApiDocument(View):
    """JSON unless `?format=yaml`, or `Accept`, asks for YAML."""

    @method_decorator(etag(lambda request: _document_etag(_requested_format(request))))
    def get(self, request: HttpRequest) -> HttpResponse:
        kind = _requested_format(request)
        response = HttpResponse(openapi_document(kind), content_type=KINDS[kind])
        response["Cache-Control"] = "public, max-age=300"
        return response

    def http_method_not_allowed(self, request: HttpRequest) -> HttpResponse:
        response = errors.error_response(request, 405, "The document is only read.")
        response["Allow"] = "GET, HEAD, OPTIONS"
        return response


def _requested_format(request: HttpRequest) -> str:
    wanted = request.GET.get("format", "")
    if wanted in KINDS:
        return wanted
    accepted = request.headers.get("Accept", "")
    return "yaml" if "yaml" in accepted and "json" not in accepted else "json"


def _write_documents(place: Path, name: str) -> None:
    for old in place.glob("*.*"):
        old.unlink()
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    for kind, renderer in (("json", OpenApiJsonRenderer()), ("yaml", OpenApiYamlRenderer())):
        new = place / f"{name}.new"
        new.write_bytes(renderer.render(schema, renderer_context={}))
        new.rename(place / f"{name}.{kind}")


def _release_fingerprint() -> str:
    """Of the code and of what makes the document: other files, or other times of them, are another
    release."""
    rooms = (settings.BASE_DIR / room for room in ("audit", "config", "tools"))
    files = sorted(file for room in rooms for file in room.rglob("*.py"))
    seen = [*MADE_BY, *(f"{file} {file.stat().st_mtime_ns}" for file in files)]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:32]
