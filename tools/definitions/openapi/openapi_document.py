"""The OpenAPI document as a whole: its limits, references, operations and server URLs."""

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from tools.definitions.values import json_pointers, strict_json

MOST_OPERATIONS = 1_000
MOST_HOPS = 20
MOST_PARTS = 300_000  # of schemas and parameters, each counted wherever it is referred to
VERSIONS = ("3.0", "3.1")
UNREADABLE = object()  # for a number beyond a double; its users have a note
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
VARIABLE = re.compile(r"\{([^{}]*)\}")
METHODS = ("get", "head", "post", "put", "patch", "delete")
MOST_VARIABLES = 20


class BadOpenApiDocument(ValueError):
    """The whole document cannot be read. The text says why."""


class OperationFlaw(Exception):
    """One operation cannot be made a tool. The text says why."""


@dataclass(frozen=True)
class Operation:
    """`shared` are the parameters of the path for all its operations."""

    method: str
    path: str
    own: dict[str, Any]
    shared: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def identity(self) -> str:
        """The same for `/pets/{id}` and `/pets/{pet}`, which are one path (OpenAPI, 4.8.8)."""
        return operation_identity(self.key)

    @property
    def id(self) -> str:
        return text_in(self.own, "operationId")


class OpenApiDescription:
    """Raises `BadOpenApiDocument`. `odd_paths` are those whose operations cannot be read, each with
    the reason, once `operations` was called."""

    def __init__(self, raw: Any) -> None:
        try:
            strict_json.check(raw, scalars=False)
        except strict_json.BadJson as error:
            raise BadOpenApiDocument(f"The document cannot be used: {error}.") from None
        self.raw = _as_json_value(raw)
        if not isinstance(self.raw, dict) or not isinstance(self.raw.get("paths"), dict):
            raise BadOpenApiDocument("This is no OpenAPI document: it has no paths.")
        version = str(self.raw.get("openapi", ""))
        if not version.startswith(VERSIONS):
            raise BadOpenApiDocument("Only OpenAPI 3.0 and 3.1 are read; see the field openapi.")
        self.legacy = version.startswith("3.0")
        self.title = text_in(object_in(self.raw, "info"), "title")[:200]
        self.odd_paths: dict[str, str] = {}
        self._parts_left = MOST_PARTS

    def count(self) -> None:
        """Counts a part that was read: a small document can refer to itself very often."""
        self._parts_left -= 1
        if self._parts_left < 0:
            raise BadOpenApiDocument(
                f"The operations refer to more than {MOST_PARTS} parts of schemas; pick fewer."
            )

    def operations(self) -> list[Operation]:
        found = list(self._operations())
        if len(found) + len(self.odd_paths) > MOST_OPERATIONS:
            raise BadOpenApiDocument(f"The document has more than {MOST_OPERATIONS} operations.")
        return found

    def _operations(self) -> Iterator[Operation]:
        for path, item in self.raw["paths"].items():
            if not path.startswith("/"):
                continue  # an extension
            try:
                shared = self.resolved(item)
            except OperationFlaw as flaw:
                self.odd_paths[path] = str(flaw)
                continue
            for method in METHODS:
                if isinstance(own := shared.get(method), dict):
                    yield Operation(method.upper(), path, own, shared)

    def resolved(self, part: Any) -> dict[str, Any]:
        """The object itself, or the one that it refers to. Raises `OperationFlaw`."""
        for _ in range(MOST_HOPS):
            if not isinstance(part, dict):
                raise OperationFlaw("what should be an object, or name one, does not")
            if "$ref" not in part:
                return part
            part = self.resolve_reference(part["$ref"])
        raise OperationFlaw("a $ref leads in a circle")

    def resolve_reference(self, reference: Any) -> Any:
        """The target of a local reference. Raises `OperationFlaw`."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise OperationFlaw(
                f"the $ref {str(reference)[:100]} leads outside the document, or is no JSON "
                "pointer; nothing is fetched"
            )
        found: Any = self.raw
        for raw in reference[2:].split("/"):
            step = json_pointers.unescape(unquote(raw))
            if isinstance(found, list) and step.isascii() and step.isdigit():
                found = found[int(step)] if int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise OperationFlaw(f"the $ref {reference[:100]} leads nowhere")
        return found


def operation_identity(key: str) -> str:
    """The identity of an operation such as `GET /pets/{id}`: without the names in its path."""
    return VARIABLE.sub("{}", key)


def object_in(part: Any, name: str) -> dict[str, Any]:
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, dict) else {}


def list_in(part: Any, name: str) -> list[Any]:
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, list) else []


def names_in(part: Any, name: str) -> list[str]:
    return [one for one in list_in(part, name) if isinstance(one, str)]


def text_in(part: Any, name: str) -> str:
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, str) else ""


def _as_json_value(value: Any) -> Any:
    """The value as JSON: YAML has dates, and keys that are no texts. NUL and lone surrogates, which
    cannot be stored, become U+FFFD."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_as_json_key(key): _as_json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json_value(part) for part in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return UNREADABLE
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < strict_json.TOO_LARGE else UNREADABLE
    return str(value)


def _as_json_key(key: Any) -> str:
    text = ("true" if key else "false") if isinstance(key, bool) else str(key)
    return _UNSTORABLE.sub("\ufffd", text)


@dataclass(frozen=True)
class ServerVariable:
    """A variable in a URL. `allowed` is empty where every value is allowed."""

    name: str
    default: str
    allowed: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class OpenApiServers:
    """`server` is a URL in place of the document's own, `given` the values of its variables.

    Raises `BadOpenApiDocument` for a value without a variable.
    """

    document: OpenApiDescription
    server: str | None
    given: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.given:
            return
        known = server_variables(self.document)
        for name, value in self.given.items():
            if name not in known:
                said = ", ".join(known) or "it has none"
                raise BadOpenApiDocument(
                    f"No server of the document has the variable {name[:60]!r}; known: {said}."
                )
            allowed = known[name].allowed
            if allowed and value not in allowed:
                raise BadOpenApiDocument(
                    f"The variable {name[:60]!r} of the server must be one of "
                    f"{', '.join(allowed)[:200]}."
                )

    def server_url(self, operation: Operation) -> str:
        """The first of the nearest list. Raises `OperationFlaw`."""
        if self.server:
            return self.server
        for owner in (operation.own, operation.shared, self.document.raw):
            for server in list_in(owner, "servers")[:1]:
                url = self._filled(text_in(server, "url"), object_in(server, "variables"))
                if not urlsplit(url).netloc:
                    raise OperationFlaw(
                        f"its server is {url[:100]!r}, which names no host; say which server"
                    )
                return url
        raise OperationFlaw("the document names no server; say which")

    def _filled(self, url: str, variables: dict[str, Any]) -> str:
        return VARIABLE.sub(lambda one: self._value(variables, one[1]), url)

    def _value(self, variables: dict[str, Any], name: str) -> str:
        value = self.given.get(name, object_in(variables, name).get("default"))
        if not isinstance(value, str):
            raise OperationFlaw(
                f"the variable {name[:60]!r} of its server has no default; give it a value, or "
                "say which server"
            )
        return value


def server_variables(document: OpenApiDescription) -> dict[str, ServerVariable]:
    """The variables in the URL of the server, by name."""
    found: dict[str, ServerVariable] = {}
    for server in _first_servers(document):
        described = object_in(server, "variables")
        for name in VARIABLE.findall(text_in(server, "url")):
            raw = object_in(described, name)
            if len(found) < MOST_VARIABLES:
                allowed = tuple(names_in(raw, "enum"))
                said = text_in(raw, "description")[:200]
                found.setdefault(name, ServerVariable(name, text_in(raw, "default"), allowed, said))
    return found


def _first_servers(document: OpenApiDescription) -> Iterator[Any]:
    yield from list_in(document.raw, "servers")[:1]
    for operation in document.operations():
        for owner in (operation.own, operation.shared):
            yield from list_in(owner, "servers")[:1]
