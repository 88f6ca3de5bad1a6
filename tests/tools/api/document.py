"""The generated OpenAPI document, and a check of answers against it. It takes half a second to
generate, so each process does so once."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator

AS_JSON = {"Accept": "application/json"}  # YAML, the default, takes another half a second
BASE = "/api/v1/"
URN = "urn:document"
Pointer = tuple[str, ...]  # path of a node in the document


@cache
def document() -> dict[str, Any]:
    made = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    plain: dict[str, Any] = json.loads(json.dumps(made))
    return plain


class MadeOnce(SchemaGenerator):
    def get_schema(self, request: Any = None, public: bool = False) -> dict[str, Any]:
        return document()


def flaws(method: str, path: str, response: HttpResponseBase) -> Iterator[str]:
    """The differences between an answer and the document; none for undocumented routes and for
    status 500."""
    operation = _operation(method, path)
    status = str(response.status_code)
    if operation is None or status == "500":
        return
    responses = (*operation, "responses")
    if status not in resolve_pointer(responses):
        yield f"{status} is not one of {sorted(resolve_pointer(responses))}"
        return
    answer = follow_reference((*responses, status))
    for name in resolve_pointer((*answer, "headers")):
        header = follow_reference((*answer, "headers", name))
        if name in response:
            yield from _wrong((*header, "schema"), response[name], f"header {name}")
        elif resolve_pointer(header).get("required"):
            yield f"{status} without the header {name}"
    if response.get("Idempotent-Replay-Withheld") == "*":
        return  # the header describes the body instead
    yield from _wrong_content(
        (*answer, "content"), resolve_pointer(answer).get("content", {}), response
    )


def _wrong_content(
    content: Pointer, types: dict[str, Any], response: HttpResponseBase
) -> Iterator[str]:
    given = response.headers.get("Content-Type", "").partition(";")[0]
    body = None if response.streaming else getattr(response, "content", b"")
    if body == b"" or not types:
        if types or body != b"":
            yield f"{response.status_code} is {given!r} {body!r}, not one of {sorted(types)}"
    elif given not in types:
        yield f"{response.status_code} is {given}, not one of {sorted(types)}"
    elif given.endswith("json") and body is not None:
        yield from _wrong((*content, given, "schema"), json.loads(body), "the body")


def _wrong(schema: Pointer, value: Any, what: str) -> Iterator[str]:
    for error in _validator(schema).iter_errors(value):
        place = "/".join(map(str, error.instance_path))
        yield f"{what} at {place or 'its root'}: {error.message[:300]}"


def _operation(method: str, path: str) -> Pointer | None:
    if not path.startswith(BASE):
        return None
    try:
        route = resolve(path).route
    except Resolver404:
        return None
    documented = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)
    operations = document()["paths"].get(documented, {})
    return ("paths", documented, method.lower()) if method.lower() in operations else None


def resolve_pointer(pointer: Pointer) -> Any:
    node: Any = document()
    for step in pointer:
        node = node[step]
    return node


def follow_reference(pointer: Pointer) -> Pointer:
    """The target of the reference at this node, or the node itself."""
    node = resolve_pointer(pointer)
    return tuple(node["$ref"].removeprefix("#/").split("/")) if "$ref" in node else pointer


@cache
def _validator(schema: Pointer) -> Any:
    steps = (one.replace("~", "~0").replace("/", "~1") for one in schema)
    reference = {"$ref": f"{URN}#/{'/'.join(steps).replace('{', '%7B').replace('}', '%7D')}"}
    return jsonschema_rs.Draft202012Validator(
        reference, registry=_registry(), validate_formats=True
    )


@cache
def _registry() -> Any:
    return jsonschema_rs.Registry([(URN, document())], draft=jsonschema_rs.Draft202012)
