"""What the OpenAPI document says beyond what it finds by itself."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from tools.api.bodies import ErrorAnswer

ERRORS = {
    "400": "A field is missing, malformed or unknown; `details` names each one.",
    "401": "No token, or one that is not valid.",
    "403": "A gate refused it, or the caller lacks the scope or permission; `code` says which.",
    "404": "Not there, or not the caller's.",
    "409": "It conflicts with what is there.",
    "410": "It was there, and is kept no longer.",
    "412": "It is not what `If-Match` names any more; nothing was changed.",
    "413": "The body is too large.",
    "415": "The body must be JSON in UTF-8.",
    "416": "There is less of it than where the range begins; `Content-Range` says how much.",
    "422": "The idempotency key was used for another body.",
    "429": "Too often; `Retry-After` says when to try again.",
    "503": "Not possible right now; `Retry-After` says when to try again.",
}
OF_EVERY_CALL = ("401", "403", "503")
OF_A_BODY = ("400", "413", "415")
OF_A_CONDITION = ("400", "412")
IF_MATCH = {
    "in": "header",
    "name": "If-Match",
    "schema": {"type": "string"},
    "description": "The `ETag` under which it was read, several, or `*`. Where it is another by "
    "now, 412 and nothing is changed; without the header nothing is compared.",
}
ETAG = {
    "schema": {"type": "string"},
    "description": "Of what a change of it can write; for `If-Match`.",
}


IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="1 to 255 visible ASCII characters. The same key and request within a day: done "
    "once, and answered the same, with `Idempotent-Replayed: true`.",
)
_ERROR = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}}


class KeyedSchema(AutoSchema):
    """A POST that takes the key says so."""

    @property
    def keyed(self) -> bool:
        return self.method == "POST" and getattr(self.view, "takes_key", False)

    def get_override_parameters(self) -> list[Any]:
        return [IDEMPOTENCY_KEY] if self.keyed else []

    def get_operation(self, *args: Any, **options: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **options)
        if operation is not None and self.keyed:
            responses = operation["responses"]
            for status in ("400", "409", "422"):
                responses.setdefault(status, _ERROR | {"description": ERRORS[status]})
            operation["responses"] = dict(sorted(responses.items()))
        return operation


class CallerSchema(KeyedSchema):
    """Every operation with the errors it shares with others, each in words."""

    def get_operation(self, *args: Any, **options: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **options)
        if operation is None:
            return None
        shared = set(OF_EVERY_CALL) if any(operation.get("security", [])) else {"503"}
        if "requestBody" in operation:
            shared.update(OF_A_BODY)
        elif any(part["in"] == "query" for part in operation.get("parameters", [])):
            shared.add("400")
        if "{" in self.path:
            shared.add("404")
        responses = operation["responses"]
        if self._is_conditional():
            shared.update(OF_A_CONDITION)
            operation["parameters"] = [*operation.get("parameters", []), IF_MATCH]
        for status in self._tagged() & responses.keys():
            responses[status].setdefault("headers", {})["ETag"] = ETAG
        for status in shared:
            responses.setdefault(status, self._error())
        for status in responses.keys() & ERRORS.keys():
            responses[status]["description"] = ERRORS[status]
        operation["responses"] = dict(sorted(responses.items()))
        return operation

    def _is_conditional(self) -> bool:
        view: Any = self.view
        return bool(view.compares(self.method))

    def _tagged(self) -> set[str]:
        """The answers that come with an `ETag`."""
        if not self._represents():
            return set()
        if self.method == "GET":
            return {"200"} if self.path.endswith("}") else set()
        if self._is_conditional():
            return {"200"} if getattr(self.view, "answers_thing", False) else set()
        return {"201"} if self.method == "POST" else set()

    def _represents(self) -> bool:
        return bool(getattr(self.view, "represents", False))

    def get_operation_id(self) -> str:
        """Where a view serves two addresses and names neither: `…/tools/{name}/enable`."""
        resource, verb = self.path.split("/")[3], self.path.rsplit("/", 1)[1]
        return f"{verb}_{resource.removesuffix('s')}".replace("-", "_")

    def get_summary(self) -> str:
        return str(self.get_operation_id()).replace("_", " ").capitalize()

    def _error(self) -> dict[str, Any]:
        schema = self.resolve_serializer(ErrorAnswer, "response").ref
        return {"content": {"application/json": {"schema": schema}}}


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tools.api.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "tcr_…",
            "description": "An agent's token, or a person's.",
        }


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tools.api.authentication.PersonAuthentication"
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
REFUSAL = OpenApiExample("A gate said no", response_only=True, status_codes=["403"], value=_REFUSAL)
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
