"""Drafts a definition from each operation of an OpenAPI document, with its errors and the one
credential that its requests need; and an overview to choose operations from.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tools.definitions.implementations.http_tools import CREDENTIAL_NAME
from tools.definitions.openapi.openapi_document import (
    VARIABLE,
    OpenApiDescription,
    OpenApiServers,
    Operation,
    OperationFlaw,
    ServerVariable,
    list_in,
    object_in,
    server_variables,
    text_in,
)
from tools.definitions.openapi.openapi_schemas import OperationSchemas, normalize_text
from tools.definitions.openapi.parameters import OperationArguments, argument_name, read_arguments
from tools.definitions.schemas import json_schemas as checking
from tools.definitions.texts.lookalikes import skeleton
from tools.definitions.texts.names import plain_name, with_digest
from tools.definitions.tool import read_definition
from tools.definitions.vocabulary import Category, Delivery, ToolType
from tools.errors import InvalidDefinition

RequiredCredential = tuple[str, str]  # the scheme's name, and the header it goes into
OPENAPI_SOURCE = "openapi"  # the `metadata.source` of tools from OpenAPI
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 4_000
# Semantics of HTTP methods (RFC 9110, 9.2); a person may override them.
DELIVERIES = {
    "GET": Delivery.PURE,
    "HEAD": Delivery.PURE,
    "PUT": Delivery.IDEMPOTENT,
    "DELETE": Delivery.IDEMPOTENT,
}
MOST_SCHEMES = 20


def required_credential(
    document: OpenApiDescription, operation: Operation
) -> RequiredCredential | None:
    """The first alternative that a credential can satisfy. Raises `OperationFlaw`."""
    wanted = operation.own.get("security", document.raw.get("security"))
    if not wanted or not isinstance(wanted, list):
        return None
    reasons = []
    for alternative in wanted:
        if alternative == {}:
            return None
        try:
            return _read_alternative(document, alternative)
        except OperationFlaw as reason:
            reasons.append(str(reason))
    raise OperationFlaw("it needs " + ", or ".join(reasons))


def _read_alternative(document: OpenApiDescription, alternative: Any) -> RequiredCredential:
    if not isinstance(alternative, dict) or len(alternative) != 1:
        raise OperationFlaw("several credentials at once, and a tool has one")
    (name,) = alternative
    schemes = object_in(object_in(document.raw, "components"), "securitySchemes")
    scheme = document.resolved(schemes.get(name))
    return _credential_name(name), _credential_header(name, scheme)


def _credential_header(name: str, scheme: dict[str, Any]) -> str:
    kind, place = text_in(scheme, "type"), text_in(scheme, "in")
    if kind == "apiKey" and place == "header":
        return text_in(scheme, "name")
    if kind == "apiKey" and place == "query":
        raise OperationFlaw(f"{name[:60]}, a key in the URL: secrets never stand in URLs")
    if kind == "http" and text_in(scheme, "scheme").lower() in {"basic", "bearer"}:
        return "Authorization"
    if kind in {"oauth2", "openIdConnect"}:
        return "Authorization"
    raise OperationFlaw(
        f"{name[:60]}, which is {kind[:40] or 'nothing'} in {place[:40] or 'no place'}"
    )


def _credential_name(name: str) -> str:
    return name if CREDENTIAL_NAME.fullmatch(name) else argument_name(name)[:63]


@dataclass(frozen=True)
class OperationDraft:
    """An operation as a definition. `definition` is empty where the flaws leave none.

    `header` is the one the credential has to be in; `notes` list what was left out; `operations`
    are the identities of all that the document has, whichever were picked.
    """

    key: str
    name: str
    definition: dict[str, Any] = field(default_factory=dict)
    flaws: tuple[dict[str, str], ...] = ()
    header: str = ""
    notes: tuple[str, ...] = ()
    operations: frozenset[str] = frozenset()


def draft_operations(
    raw: Any,
    *,
    pick: Sequence[str] = (),
    server: str | None = None,
    variables: Mapping[str, str] | None = None,
    group: list[str] | None = None,
    credentials: Mapping[str, str] | None = None,
) -> list[OperationDraft]:
    """The operations that are picked, by their id or as `GET /path`; without a pick all that are
    not deprecated. `server` takes the place of the document's own, `variables` fill those in;
    `credentials` maps the names of its security schemes to those of our credentials. Raises
    `BadDocument`.
    """
    document = OpenApiDescription(raw)
    operations = document.operations()
    servers = OpenApiServers(document, server, variables or {})
    chosen, names = frozenset(pick), _tool_names(operations)
    wanted = [one for one in operations if _is_picked(one, chosen)]
    known = frozenset(one.identity for one in operations)
    made = [
        _draft_operation(
            document,
            one,
            names[one.key],
            servers=servers,
            group=group,
            credentials=credentials or {},
        )
        for one in wanted
    ]
    odd = [
        OperationDraft(
            path, "", flaws=({"field": "operation", "message": f"cannot be read: {reason}"},)
        )
        for path, reason in document.odd_paths.items()
        if not chosen or path in chosen
    ]
    return [
        *(replace(one, operations=known) for one in made),
        *odd,
        *_missing_picks(operations, [one for one in pick if one not in document.odd_paths]),
    ]


def _tool_names(operations: Iterable[Operation]) -> dict[str, str]:
    """Of every operation, by its key. Operations with confusable names all have a digest of the
    operation in theirs, so that names do not depend on which are picked, or on their order."""
    plain = {one.key: _tool_name(one) for one in operations}
    alike = Counter(form for name in plain.values() for form in _confusable_forms(name))
    return {
        key: with_digest(name, key, longest=LONGEST_NAME)
        if any(alike[form] > 1 for form in _confusable_forms(name))
        else name
        for key, name in plain.items()
    }


def _confusable_forms(name: str) -> set[tuple[str, str]]:
    """Of which the catalog has each once."""
    return {("case", name.casefold()), ("look", skeleton(name))}


def _tool_name(operation: Operation) -> str:
    place = f"{operation.method.lower()}{operation.path}"
    named = (plain_name(text, longest=LONGEST_NAME) for text in (operation.id, place))
    return next(filter(None, named), operation.method.lower())


def _is_picked(operation: Operation, pick: frozenset[str]) -> bool:
    if pick:
        return operation.key in pick or (operation.id != "" and operation.id in pick)
    return operation.own.get("deprecated") is not True


def _missing_picks(operations: list[Operation], pick: Sequence[str]) -> list[OperationDraft]:
    known = {name for one in operations for name in (one.key, one.id)}
    flaw = {"field": "pick", "message": "names no operation of the document"}
    return [
        OperationDraft(one, "", flaws=(flaw,)) for one in dict.fromkeys(pick) if one not in known
    ]


def _draft_operation(
    document: OpenApiDescription,
    operation: Operation,
    name: str,
    *,
    servers: OpenApiServers,
    group: list[str] | None,
    credentials: Mapping[str, str],
) -> OperationDraft:
    try:
        raw, header, notes = _draft_definition(document, operation, name, servers, credentials)
    except OperationFlaw as flaw:
        message = f"cannot be made a tool: {flaw}"
        return OperationDraft(
            operation.key, name, flaws=({"field": "operation", "message": message},)
        )
    if group is not None:
        raw["group"] = group
    try:
        read_definition(raw)
    except InvalidDefinition as error:
        errors = error.details["errors"] or [{"field": "definition", "message": error.message}]
        return OperationDraft(operation.key, name, raw, tuple(errors), header, notes)
    return OperationDraft(operation.key, name, raw, (), header, notes)


def _draft_definition(
    document: OpenApiDescription,
    operation: Operation,
    name: str,
    servers: OpenApiServers,
    credentials: Mapping[str, str],
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """The definition, the header of its credential, and notes. Raises `OperationFlaw`."""
    requests = OperationSchemas(document, "request")
    found = read_arguments(document, operation, requests)
    output, notes = _output_schema(document, operation)
    scheme, header = required_credential(document, operation) or ("", "")
    implementation = _draft_implementation(operation, found, servers)
    if output is not None:
        implementation["select"] = ""
    if scheme:
        implementation["credential"] = credentials.get(scheme, scheme)
    summary = normalize_text(text_in(operation.own, "summary"), 200).replace("\n", " ")
    description = normalize_text(text_in(operation.own, "description"), LONGEST_DESCRIPTION)
    deprecated = "Deprecated. " if operation.own.get("deprecated") is True else ""
    definition = {
        "name": name,
        "type": ToolType.HTTP.value,
        "title": summary or None,
        "description": deprecated + (description or summary or operation.key),
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
        "metadata": {
            "source": OPENAPI_SOURCE,
            "document": document.title,
            "operation": operation.key,
        },
    }
    return definition, header, (*requests.notes, *notes)


def _draft_implementation(
    operation: Operation, found: OperationArguments, servers: OpenApiServers
) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "query": found.query,
        "headers": found.headers,
        "cookies": found.cookies,
        "form": found.form,
        "text": found.text,
    }
    made: dict[str, Any] = {
        "method": operation.method,
        "url": servers.server_url(operation).rstrip("/") + _path_template(operation, found),
    }
    made |= {name: part for name, part in parts.items() if part}
    return made if found.body is None else {**made, "body": found.body}


def _path_template(operation: Operation, found: OperationArguments) -> str:
    wanted = VARIABLE.findall(operation.path)
    if missing := [name for name in wanted if name not in found.path]:
        raise OperationFlaw(f"its path has {{{missing[0][:60]}}}, which is no parameter")
    if unused := [name for name in found.path if name not in wanted]:
        raise OperationFlaw(f"the parameter {unused[0][:60]!r} stands nowhere in its path")
    return VARIABLE.sub(lambda one: f"{{{found.path[one[1]]}}}", operation.path)


def _output_schema(
    document: OpenApiDescription, operation: Operation
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The schema of the one successful response, if it is JSON. An unusable schema is left out."""
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
        reader = OperationSchemas(document, "response")
        raw = object_in(content, "application/json").get("schema", {})
        schema = reader.standalone(reader.read(raw))
        checking.check_schema(schema)
    except (OperationFlaw, checking.BadSchema) as reason:
        return None, (f"The schema of the answer was left out: {reason}",)
    notes = tuple(f"The schema of the answer: {note}" for note in reader.notes)
    return (schema, notes) if isinstance(schema, dict) and schema else (None, ())


@dataclass(frozen=True)
class OfferedOperation:
    """One operation. `key` is what picks it: `GET /path`, or the path alone where it cannot be
    read."""

    key: str
    summary: str
    deprecated: bool


@dataclass(frozen=True)
class Overview:
    """`schemes`: the names of its credentials, and the header of each; `variables`: the variables
    in the URLs of its servers."""

    title: str
    address: str
    operations: list[OfferedOperation]
    schemes: dict[str, str] = field(default_factory=dict)
    variables: dict[str, ServerVariable] = field(default_factory=dict)


def read_overview(raw: Any) -> Overview:
    """Raises `BadDocument`."""
    document = OpenApiDescription(raw)
    operations = document.operations()
    servers = [text_in(one, "url") for one in list_in(document.raw, "servers")]
    return Overview(
        document.title,
        servers[0][:200] if servers else "",
        [
            *(_offered_operation(one) for one in operations),
            *(OfferedOperation(path, "", deprecated=False) for path in document.odd_paths),
        ],
        _credential_schemes(document, operations),
        server_variables(document),
    )


def _offered_operation(one: Operation) -> OfferedOperation:
    summary = text_in(one.own, "summary") or text_in(one.own, "description")
    said = normalize_text(summary, 200).replace("\n", " ")
    return OfferedOperation(one.key, said, one.own.get("deprecated") is True)


def _credential_schemes(
    document: OpenApiDescription, operations: list[Operation]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in operations:
        try:
            scheme = required_credential(document, one)
        except OperationFlaw:
            continue  # reported with the operation later
        if scheme and len(found) < MOST_SCHEMES:
            found.setdefault(*scheme)
    return found
