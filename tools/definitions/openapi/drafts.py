"""From operations to definitions, each with what is wrong with it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tools.definitions import schemas as compiling
from tools.definitions.openapi.document import (
    Document,
    Flaw,
    Operation,
    list_in,
    object_in,
    text_in,
)
from tools.definitions.openapi.parameters import Told, told
from tools.definitions.openapi.schemas import Schemas, plain_text
from tools.definitions.openapi.security import needed
from tools.definitions.tool import read_definition
from tools.definitions.vocabulary import Category, Delivery, ToolType
from tools.errors import InvalidDefinition

SOURCE = "openapi"  # what `metadata.source` says of tools that came this way
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 4_000
# What HTTP says of its methods (RFC 9110, 9.2); a person may know better.
DELIVERIES = {
    "GET": Delivery.PURE,
    "HEAD": Delivery.PURE,
    "PUT": Delivery.IDEMPOTENT,
    "DELETE": Delivery.IDEMPOTENT,
}
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_TEMPLATE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Draft:
    """An operation as a definition. `definition` is empty where the flaws leave none.

    `header` is the one the credential has to be in; `notes` say what was left out.
    """

    key: str
    name: str
    definition: dict[str, Any] = field(default_factory=dict)
    flaws: tuple[dict[str, str], ...] = ()
    header: str = ""
    notes: tuple[str, ...] = ()


def drafts(
    raw: Any,
    *,
    pick: Sequence[str] = (),
    server: str | None = None,
    group: list[str] | None = None,
    credentials: Mapping[str, str] | None = None,
) -> list[Draft]:
    """The operations that are picked, by their id or as `GET /path`; without a pick all that are
    not deprecated. `server` takes the place of the document's own; `credentials` says what ours
    are called by the names of its security schemes. Raises `BadDocument`.
    """
    document = Document(raw)
    operations = document.operations()
    chosen = frozenset(pick)
    wanted = [one for one in operations if _picked(one, chosen)]
    made = [_draft(document, one, server, group, credentials or {}) for one in wanted]
    return [*_told_apart(made), *_missing(operations, pick)]


def _picked(operation: Operation, pick: frozenset[str]) -> bool:
    if pick:
        return operation.key in pick or (operation.id != "" and operation.id in pick)
    return operation.own.get("deprecated") is not True


def _missing(operations: list[Operation], pick: Sequence[str]) -> list[Draft]:
    known = {name for one in operations for name in (one.key, one.id)}
    flaw = {"field": "pick", "message": "names no operation of the document"}
    return [Draft(one, "", flaws=(flaw,)) for one in dict.fromkeys(pick) if one not in known]


def _told_apart(made: Iterable[Draft]) -> list[Draft]:
    """Of two operations with one name, the second is refused."""
    first: dict[str, str] = {}
    return [_apart(draft, first.setdefault(draft.name.lower(), draft.key)) for draft in made]


def _apart(draft: Draft, owner: str) -> Draft:
    if owner == draft.key:
        return draft
    flaw = {"field": "name", "message": f"is the name of {owner} too; pick one of them"}
    return Draft(draft.key, draft.name, flaws=(*draft.flaws, flaw))


def _draft(
    document: Document,
    operation: Operation,
    server: str | None,
    group: list[str] | None,
    credentials: Mapping[str, str],
) -> Draft:
    name = _name(operation)
    try:
        raw, header, notes = _definition(document, operation, name, server, credentials)
    except Flaw as flaw:
        message = f"cannot be made a tool: {flaw}"
        return Draft(operation.key, name, flaws=({"field": "operation", "message": message},))
    if group is not None:
        raw["group"] = group
    try:
        read_definition(raw)
    except InvalidDefinition as error:
        errors = error.details["errors"] or [{"field": "definition", "message": error.message}]
        return Draft(operation.key, name, raw, tuple(errors), header, notes)
    return Draft(operation.key, name, raw, (), header, notes)


def _name(operation: Operation) -> str:
    wished = operation.id or f"{operation.method.lower()}{operation.path}"
    return _ODD.sub("_", wished).strip("_.-")[:LONGEST_NAME] or operation.method.lower()


def _definition(
    document: Document,
    operation: Operation,
    name: str,
    server: str | None,
    credentials: Mapping[str, str],
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """The definition, the header of its credential, and notes. Raises `Flaw`."""
    requests = Schemas(document, "request")
    found = told(document, operation, requests)
    output, notes = _output(document, operation)
    scheme, header = needed(document, operation) or ("", "")
    implementation = _implementation(document, operation, found, server)
    if output is not None:
        implementation["select"] = ""
    if scheme:
        implementation["credential"] = credentials.get(scheme, scheme)
    summary = plain_text(text_in(operation.own, "summary"), 200).replace("\n", " ")
    description = plain_text(text_in(operation.own, "description"), LONGEST_DESCRIPTION)
    definition = {
        "name": name,
        "type": ToolType.HTTP.value,
        "title": summary or None,
        "description": _deprecated(operation) + (description or summary or operation.key),
        "category": Category.EXTERNAL_API.value,
        "input_schema": requests.standalone(
            {
                "type": "object",
                "properties": found.properties,
                "required": found.required,
                "additionalProperties": False,
            }
        ),
        "output_schema": output or {},
        "delivery": DELIVERIES.get(operation.method, Delivery.EXTERNAL).value,
        "implementation": implementation,
        "metadata": {"source": SOURCE, "document": document.title, "operation": operation.key},
    }
    return definition, header, notes


def _deprecated(operation: Operation) -> str:
    return "Deprecated. " if operation.own.get("deprecated") is True else ""


def _implementation(
    document: Document, operation: Operation, found: Told, server: str | None
) -> dict[str, Any]:
    place = server or _server(document, operation)
    parts: dict[str, Any] = {
        "query": found.query,
        "headers": found.headers,
        "cookies": found.cookies,
        "form": found.form,
    }
    made: dict[str, Any] = {
        "method": operation.method,
        "url": place.rstrip("/") + _path(operation, found),
    }
    made |= {name: part for name, part in parts.items() if part}
    return made if found.body is None else {**made, "body": found.body}


def _path(operation: Operation, found: Told) -> str:
    wanted = _TEMPLATE.findall(operation.path)
    if missing := [name for name in wanted if name not in found.path]:
        raise Flaw(f"its path has {{{missing[0][:60]}}}, which is no parameter")
    if unused := [name for name in found.path if name not in wanted]:
        raise Flaw(f"the parameter {unused[0][:60]!r} stands nowhere in its path")
    return _TEMPLATE.sub(lambda one: f"{{{found.path[one[1]]}}}", operation.path)


def _server(document: Document, operation: Operation) -> str:
    """The first of the nearest list; its variables are their defaults. Raises `Flaw`."""
    for owner in (operation.own, operation.shared, document.raw):
        for server in list_in(owner, "servers")[:1]:
            url = _filled(text_in(server, "url"), object_in(server, "variables"))
            if not urlsplit(url).netloc:
                raise Flaw(f"its server is {url[:100]!r}, which names no host; say which server")
            return url
    raise Flaw("the document names no server; say which")


def _filled(url: str, variables: dict[str, Any]) -> str:
    return _TEMPLATE.sub(lambda one: _default(variables, one[1]), url)


def _default(variables: dict[str, Any], name: str) -> str:
    default = object_in(variables, name).get("default")
    if not isinstance(default, str):
        raise Flaw(f"the variable {name[:60]!r} of its server has no default")
    return default


def _output(
    document: Document, operation: Operation
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The schema of the one good answer, where that is JSON. One that cannot be is left out."""
    answers = {
        code: part
        for code, part in object_in(operation.own, "responses").items()
        if code.startswith("2")
    }
    if len(answers) != 1 or operation.method == "HEAD":
        return None, ()
    try:
        ((_, answer),) = answers.items()
        content = object_in(document.resolved(answer), "content")
        if set(content) != {"application/json"}:
            return None, ()
        reader = Schemas(document, "response")
        raw = object_in(content, "application/json").get("schema", {})
        schema = reader.standalone(reader.read(raw))
        compiling.compiled(schema)
    except (Flaw, compiling.BadSchema) as reason:
        return None, (f"The schema of the answer was left out: {reason}",)
    return (schema, ()) if isinstance(schema, dict) and schema else (None, ())
