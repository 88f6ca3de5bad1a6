"""What an operation is told: parameters in path, query, header and cookie, and the body.

Everything becomes one object of arguments. Names are those of the document where a placeholder can
have them, and made plain where not.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.names import PARAMETER_NAME
from tools.definitions.openapi.document import (
    Document,
    Flaw,
    Operation,
    list_in,
    names_in,
    object_in,
    text_in,
)
from tools.definitions.openapi.schemas import LONGEST_DESCRIPTION, Schemas, plain_text

STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
SEPARATORS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}
MOST_ARGUMENTS = 200
FORM = "application/x-www-form-urlencoded"
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
# OpenAPI itself says that parameters of these names are to be ignored.
_IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
# What an object may say beside its members and still be nothing but its members.
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
        return text_in(self.raw, "style") or STYLES[self.place]

    @property
    def explode(self) -> bool:
        return self.raw.get("explode", self.style == "form") is True


@dataclass
class Told:
    """The arguments of a tool, and where in its request they go."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    path: dict[str, str] = field(default_factory=dict)  # the document's name: the placeholder's
    query: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    body: Any = None
    form: dict[str, Any] | None = None

    def add(self, wished: str, schema: Any, *, required: bool) -> str:
        """The name the argument has. Raises `Flaw`."""
        if len(self.properties) >= MOST_ARGUMENTS:
            raise Flaw(f"it takes more than {MOST_ARGUMENTS} arguments")
        name = self._free(plain_name(wished))
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


def plain_name(wished: str) -> str:
    """A name a placeholder can have."""
    plain = _ODD.sub("_", wished).strip("_")[:64] or "value"
    return plain if PARAMETER_NAME.fullmatch(plain) else f"p_{plain}"[:64]


def told(document: Document, operation: Operation, schemas: Schemas) -> Told:
    """Raises `Flaw`."""
    found = Told()
    for one in _parameters(document, operation):
        if not (one.place == "header" and one.name.lower() in _IGNORED_HEADERS):
            _add(found, document, schemas, one)
    if "requestBody" in operation.own:
        _add_body(found, document, schemas, document.resolved(operation.own["requestBody"]))
    return found


def _parameters(document: Document, operation: Operation) -> list[Parameter]:
    """Those of the operation stand before those of its path."""
    found: dict[tuple[str, str], Parameter] = {}
    for owner in (operation.shared, operation.own):
        listed = list_in(owner, "parameters")
        if len(listed) > MOST_ARGUMENTS:
            raise Flaw(f"it takes more than {MOST_ARGUMENTS} parameters")
        for given in listed:
            document.count()
            raw = document.resolved(given)
            place, name = text_in(raw, "in"), text_in(raw, "name")
            if place not in STYLES or not name:
                raise Flaw(f"the parameter {name[:60]!r} is in no place that is known")
            found[place, name] = Parameter(place, name, raw)
    return list(found.values())


def _add(found: Told, document: Document, schemas: Schemas, one: Parameter) -> None:
    _check(document, one)
    schema = _described(schemas.read(one.raw["schema"]), one.raw)
    required = one.place == "path" or one.raw.get("required") is True
    argument = found.add(one.name, schema, required=required)
    value: Any = f"{{{argument}}}"
    if one.place == "query" and not one.explode and _kind(document, one.raw["schema"]) == "array":
        value = {"value": value, "separator": SEPARATORS[one.style]}
    if one.place == "path":
        found.path[one.name] = argument
    else:
        members = {"query": found.query, "header": found.headers, "cookie": found.cookies}
        members[one.place][one.name] = value


def _check(document: Document, one: Parameter) -> None:
    """Raises `Flaw` for what a template of ours cannot say."""
    known = SEPARATORS if one.place == "query" else {STYLES[one.place]}
    if one.style not in known:
        raise Flaw(f"{one.words} has the style {one.style[:40]}, which is not made")
    if not isinstance(one.raw.get("schema"), dict | bool):
        raise Flaw(f"{one.words} has no schema; a content is not made")
    if _kind(document, one.raw["schema"]) == "object":
        raise Flaw(f"{one.words} is an object, which is not made in a {one.place}")


def _add_body(found: Told, document: Document, schemas: Schemas, raw: dict[str, Any]) -> None:
    content, required = object_in(raw, "content"), raw.get("required") is True
    kinds = {kind.partition(";")[0].strip().lower(): kind for kind in content}
    chosen = next((kind for kind in kinds if _JSON.fullmatch(kind)), None)
    if chosen is not None:
        schema = object_in(content, kinds[chosen]).get("schema", True)
        _add_json(found, document, schemas, schema, raw, required=required)
        if chosen != "application/json":
            found.headers["Content-Type"] = chosen
    elif FORM in kinds:
        schema = object_in(content, kinds[FORM]).get("schema", True)
        _add_form(found, document, schemas, schema, required=required)
    elif content:
        names = ", ".join(sorted(kinds))[:200]
        raise Flaw(f"its body is {names}; only JSON and {FORM} are made")


def _add_json(
    found: Told, document: Document, schemas: Schemas, schema: Any, raw: dict[str, Any], *,
    required: bool,
) -> None:  # fmt: skip
    """An object's members as arguments, if each keeps its name; else the body as one."""
    members = _members(document, schemas, schema) if required else None
    if members is None or not _keep_their_names(members[0], found):
        made = _described(schemas.read(schema), raw)
        found.body = f"{{{found.add('body', made, required=required)}}}"
        return
    properties, needed = members
    found.body = {
        name: f"{{{found.add(name, part, required=name in needed)}}}"
        for name, part in properties.items()
    }


def _keep_their_names(properties: dict[str, Any], found: Told) -> bool:
    return all(plain_name(name) == name and name not in found.properties for name in properties)


def _add_form(
    found: Told, document: Document, schemas: Schemas, schema: Any, *, required: bool
) -> None:
    members = _members(document, schemas, schema)
    if members is None:
        raise Flaw("its form is no plain object with members")
    properties, needed = members
    kinds = document.resolved(schema)["properties"]
    if objects := [name for name in properties if _kind(document, kinds[name]) == "object"]:
        raise Flaw(f"the member {objects[0][:60]!r} of its form is an object, which is not made")
    found.form = {
        name: f"{{{found.add(name, part, required=required and name in needed)}}}"
        for name, part in properties.items()
    }


def _members(
    document: Document, schemas: Schemas, schema: Any
) -> tuple[dict[str, Any], set[str]] | None:
    """Of what is an object with members and nothing else; None of anything else."""
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


def _kind(document: Document, schema: Any) -> str:
    """As far as the schema says it at its top."""
    if not isinstance(schema, dict):
        return ""
    raw = document.resolved(schema)
    kind = raw.get("type")
    kinds = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    if kinds == [None] and "properties" in raw:
        return "object"
    return kinds[0] if len(kinds) == 1 and isinstance(kinds[0], str) else ""


def _described(schema: Any, raw: dict[str, Any]) -> Any:
    description = plain_text(text_in(raw, "description"), LONGEST_DESCRIPTION)
    if not description:
        return schema
    return ({} if isinstance(schema, bool) else schema) | {"description": description}
