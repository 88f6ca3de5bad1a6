"""Parameters of an operation: in path, query, header and cookie, and the body.

Everything becomes one object of arguments. Names are those of the document where a placeholder can
have them, and made plain where not.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.implementations.http_tools import Style
from tools.definitions.openapi.openapi_document import (
    OpenApiDescription,
    Operation,
    OperationFlaw,
    list_in,
    names_in,
    object_in,
    text_in,
)
from tools.definitions.openapi.openapi_schemas import (
    LONGEST_DESCRIPTION,
    OperationSchemas,
    normalize_text,
)
from tools.definitions.texts.names import PARAMETER_NAME, plain_name

DEFAULT_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
SEPARATORS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}
QUERY_STYLES = {*SEPARATORS, "deepObject"}
MOST_ARGUMENTS = 200
FORM = "application/x-www-form-urlencoded"
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json")
_TEXT = re.compile(r"text/[\w.+-]+|application/(?:[\w.-]+\+)?(?:xml|yaml|x-ndjson|jsonl?|graphql)")
# With these keywords an object can have more than its listed members.
_COMPOSED = frozenset(
    {"allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "unevaluatedProperties"}
)
# OpenAPI requires that parameters of these names are ignored.
_IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
# Keywords with which an object has only its listed members.
_OPEN = frozenset(
    {"type", "properties", "required", "description", "title", "example", "examples", "xml"}
    | {"externalDocs", "deprecated", "default", "additionalProperties"}
)


@dataclass(frozen=True)
class Parameter:
    place: str
    name: str
    raw: dict[str, Any]

    @property
    def words(self) -> str:
        return f"the parameter {self.name[:60]!r}"

    @property
    def style(self) -> str:
        return text_in(self.raw, "style") or DEFAULT_STYLES[self.place]

    @property
    def content(self) -> dict[str, Any]:
        return object_in(self.raw, "content")

    @property
    def explode(self) -> bool:
        return self.raw.get("explode", self.style == "form") is True


@dataclass
class OperationArguments:
    """The arguments of a tool, and their places in its request."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    path: dict[str, str] = field(default_factory=dict)  # the document's name: the placeholder's
    query: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    body: Any = None
    form: dict[str, Any] | None = None
    text: str = ""

    def add(self, wished: str, schema: Any, *, required: bool) -> str:
        """The name the argument has. Raises `OperationFlaw`."""
        if len(self.properties) >= MOST_ARGUMENTS:
            raise OperationFlaw(f"it takes more than {MOST_ARGUMENTS} arguments")
        name = self._free(argument_name(wished))
        self.properties[name] = schema
        if required:
            self.required.append(name)
        return name

    def _free(self, name: str) -> str:
        taken, count = name, 1
        while taken in self.properties:
            count += 1
            taken = f"{name[:60]}_{count}"
        return taken


def argument_name(wished: str) -> str:
    """A name a placeholder can have."""
    plain = plain_name(wished, longest=64) or "value"
    return plain if PARAMETER_NAME.fullmatch(plain) else f"p_{plain}"[:64]


def is_json_media_type(kind: str) -> bool:
    """Of a media type, whatever its parameters are."""
    return _JSON.fullmatch(kind.partition(";")[0].strip().lower()) is not None


def read_arguments(
    document: OpenApiDescription, operation: Operation, schemas: OperationSchemas
) -> OperationArguments:
    """Raises `OperationFlaw`."""
    found = OperationArguments()
    for one in _merge_parameters(document, operation):
        if not (one.place == "header" and one.name.lower() in _IGNORED_HEADERS):
            _add_parameter(found, document, schemas, one)
    if "requestBody" in operation.own:
        _add_body(found, document, schemas, document.resolved(operation.own["requestBody"]))
    return found


def _merge_parameters(document: OpenApiDescription, operation: Operation) -> list[Parameter]:
    """Those of the operation override those of its path."""
    found: dict[tuple[str, str], Parameter] = {}
    for owner in (operation.shared, operation.own):
        listed = list_in(owner, "parameters")
        if len(listed) > MOST_ARGUMENTS:
            raise OperationFlaw(f"it takes more than {MOST_ARGUMENTS} parameters")
        for given in listed:
            document.count()
            raw = document.resolved(given)
            place, name = text_in(raw, "in"), text_in(raw, "name")
            if place not in DEFAULT_STYLES or not name:
                raise OperationFlaw(f"the parameter {name[:60]!r} is in no place that is known")
            found[place, name] = Parameter(place, name, raw)
    return list(found.values())


def _add_parameter(
    found: OperationArguments,
    document: OpenApiDescription,
    schemas: OperationSchemas,
    one: Parameter,
) -> None:
    """Raises `OperationFlaw` for what our templates cannot express."""
    schema, entry = (
        _read_content(schemas, one) if one.content else _read_styled(document, schemas, one)
    )
    required = one.place == "path" or one.raw.get("required") is True
    argument = found.add(one.name, _with_description(schema, one.raw), required=required)
    if one.place == "path":
        found.path[one.name] = argument
    else:
        members = {"query": found.query, "header": found.headers, "cookie": found.cookies}
        members[one.place][one.name] = _argument_entry(argument, entry)


def _argument_entry(argument: str, written: dict[str, str]) -> Any:
    value = f"{{{argument}}}"
    return {"value": value, **written} if written else value


def _read_styled(
    document: OpenApiDescription, schemas: OperationSchemas, one: Parameter
) -> tuple[Any, dict[str, str]]:
    raw = one.raw.get("schema")
    if not isinstance(raw, dict | bool):
        raise OperationFlaw(f"{one.words} has neither a schema nor a content")
    known = QUERY_STYLES if one.place == "query" else {DEFAULT_STYLES[one.place]}
    if one.style not in known:
        raise OperationFlaw(f"{one.words} has the style {one.style[:40]}, which is not made")
    kind = _schema_type(document, raw)
    if one.place != "query":
        if kind == "object":
            raise OperationFlaw(f"{one.words} is an object, which is not made in a {one.place}")
        return schemas.read(raw), {}
    entry = _serialization(one.style, kind, explode=one.explode)
    own_entries = entry.get("style") == Style.FORM
    return (_close_object(document, schemas, raw) if own_entries else schemas.read(raw)), entry


def _serialization(style: str, kind: str, *, explode: bool) -> dict[str, str]:
    """The serialization of an entry of a query or a form."""
    if style == "deepObject":
        return {"style": Style.DEEP_OBJECT.value}
    if kind == "object" and explode:
        return {"style": Style.FORM.value}
    if kind in {"object", "array"} and not explode:
        return {"separator": SEPARATORS[style]}
    return {}


def _close_object(document: OpenApiDescription, schemas: OperationSchemas, raw: Any) -> Any:
    """An object whose members become entries of their own: only those that it names."""
    whole = document.resolved(raw) if isinstance(raw, dict) else raw
    made = schemas.read(whole)
    if isinstance(made, bool) or not made.get("properties") or _COMPOSED & made.keys():
        return made
    return {"additionalProperties": False, **made}


def _read_content(schemas: OperationSchemas, one: Parameter) -> tuple[Any, dict[str, str]]:
    """A parameter that is a document of its own: JSON in a query; elsewhere its text."""
    kind, media = next(iter(one.content.items()))
    schema = object_in(one.content, kind).get("schema", True) if isinstance(media, dict) else True
    if not is_json_media_type(kind):
        return schemas.read(schema), {}
    if one.place == "query":
        return schemas.read(schema), {"style": Style.JSON.value}
    return {"type": "string", "contentMediaType": kind}, {}


def _add_body(
    found: OperationArguments,
    document: OpenApiDescription,
    schemas: OperationSchemas,
    raw: dict[str, Any],
) -> None:
    content, required = object_in(raw, "content"), raw.get("required") is True
    kinds = {kind.partition(";")[0].strip().lower(): kind for kind in content}
    chosen = next((kind for kind in kinds if _JSON.fullmatch(kind)), None)
    text = next((kind for kind in kinds if _TEXT.fullmatch(kind)), None)
    if chosen is not None:
        schema = object_in(content, kinds[chosen]).get("schema", True)
        _add_json(found, document, schemas, schema, raw, required=required)
        if chosen != "application/json":
            found.headers["Content-Type"] = chosen
    elif FORM in kinds:
        _add_form(found, document, schemas, object_in(content, kinds[FORM]), required=required)
    elif text is not None:
        schema = {"type": "string", "contentMediaType": text}
        found.text = f"{{{found.add('body', _with_description(schema, raw), required=required)}}}"
        if text != "text/plain":
            found.headers["Content-Type"] = text
    elif content:
        names = ", ".join(sorted(kinds))[:200]
        raise OperationFlaw(f"its body is {names}; only JSON, text and {FORM} are made")


def _add_json(
    found: OperationArguments, document: OpenApiDescription, schemas: OperationSchemas, schema: Any,
    raw: dict[str, Any], *,
    required: bool,
) -> None:  # fmt: skip
    """An object's members as arguments, if each keeps its name; else the body as one."""
    members = _closed_members(document, schemas, schema) if required else None
    if members is None or not _keep_their_names(members[0], found):
        made = _with_description(schemas.read(schema), raw)
        found.body = f"{{{found.add('body', made, required=required)}}}"
        return
    properties, needed = members
    found.body = {
        name: f"{{{found.add(name, part, required=name in needed)}}}"
        for name, part in properties.items()
    }


def _keep_their_names(properties: dict[str, Any], found: OperationArguments) -> bool:
    return all(argument_name(name) == name and name not in found.properties for name in properties)


def _add_form(
    found: OperationArguments,
    document: OpenApiDescription,
    schemas: OperationSchemas,
    media: dict[str, Any],
    *,
    required: bool,
) -> None:
    schema = media.get("schema", True)
    members = _closed_members(document, schemas, schema)
    if members is None:
        if _schema_type(document, schema) == "object":  # with members that the schema does not list
            argument = found.add("body", schemas.read(schema), required=required)
            found.form = {argument: _argument_entry(argument, {"style": Style.FORM.value})}
            return
        raise OperationFlaw("its form is no plain object with members")
    properties, needed = members
    raw = document.resolved(schema)["properties"]
    found.form = {}
    for name, part in properties.items():
        entry = _form_serialization(
            document, object_in(object_in(media, "encoding"), name), raw[name]
        )
        argument = found.add(name, part, required=required and name in needed)
        found.form[name] = _argument_entry(argument, entry)


def _form_serialization(
    document: OpenApiDescription, encoding: dict[str, Any], raw: Any
) -> dict[str, str]:
    """Without a style of its own an object is sent as JSON (OpenAPI, 4.8.15)."""
    style, kind = text_in(encoding, "style"), _schema_type(document, raw)
    if not style and "explode" not in encoding:
        return {"style": Style.JSON.value} if kind == "object" else {}
    style = style if style in QUERY_STYLES else "form"
    explode = encoding.get("explode", style in {"form", "deepObject"}) is True
    return _serialization(style, kind, explode=explode)


def _closed_members(
    document: OpenApiDescription, schemas: OperationSchemas, schema: Any
) -> tuple[dict[str, Any], set[str]] | None:
    """The members of a closed object; None for any other schema."""
    if not isinstance(schema, dict):
        return None
    raw = document.resolved(schema)
    said = {word for word in raw if not word.startswith("x-")}
    if (
        raw.get("type", "object") != "object"
        or not said <= _OPEN
        or not object_in(raw, "properties")
    ):
        return None
    if raw.get("additionalProperties", False) is not False:
        return None
    made = schemas.read(raw)
    if isinstance(made, bool) or not made.get("properties"):
        return None
    return made["properties"], set(names_in(made, "required"))


def _schema_type(document: OpenApiDescription, schema: Any) -> str:
    """The type at the top of the schema, if any."""
    if not isinstance(schema, dict):
        return ""
    raw = document.resolved(schema)
    kind = raw.get("type")
    kinds = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    if kinds == [None] and "properties" in raw:
        return "object"
    return kinds[0] if len(kinds) == 1 and isinstance(kinds[0], str) else ""


def _with_description(schema: Any, raw: dict[str, Any]) -> Any:
    description = normalize_text(text_in(raw, "description"), LONGEST_DESCRIPTION)
    if not description:
        return schema
    return ({} if isinstance(schema, bool) else schema) | {"description": description}
