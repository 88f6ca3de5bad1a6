"""Converts schemas of an OpenAPI document to self-contained JSON Schema.

References stay references, to `$defs` beside the schema: a schema that refers to itself stays
whole, and none grows. OpenAPI 3.0's own words become those of JSON Schema.
"""

import re
from typing import Any, Literal

from tools.definitions.openapi.openapi_document import (
    UNREADABLE,
    OpenApiDescription,
    OperationFlaw,
    names_in,
)

MOST_DEFINITIONS = 200
MOST_PARTS = 20_000  # of one tool's schema: no definition is as large
LONGEST_DESCRIPTION = 1_000
type Schema = dict[str, Any] | bool
type Direction = Literal["request", "response"]

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
    | {"unevaluatedProperties", "unevaluatedItems"}
)
_PLAIN = frozenset(
    {"type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum"}
    | {"exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems"}
    | {"uniqueItems", "maxProperties", "minProperties", "required", "dependentRequired", "format"}
    | {"title", "description", "default", "deprecated", "contentEncoding", "contentMediaType"}
    | {"minContains", "maxContains"}
)
_ELSEWHERE = ("$dynamicRef", "$recursiveRef")
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class OperationSchemas:
    """The schemas of one tool in one direction: call `read`, and then once `standalone`. `notes`
    list what was left out."""

    def __init__(self, document: OpenApiDescription, direction: Direction) -> None:
        self.definitions: dict[str, Schema] = {}
        self.notes: list[str] = []
        self._document = document
        self._hidden = "readOnly" if direction == "request" else "writeOnly"
        self._names: dict[str, str] = {}
        self._pending: list[tuple[str, Any]] = []
        self._parts = 0

    def read(self, raw: Any) -> Schema:
        """Raises `OperationFlaw`. Not deeper than the document, whose depth is bounded."""
        self._count()
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, dict):
            raise OperationFlaw("a schema is no object")
        if any(word in raw for word in _ELSEWHERE):
            raise OperationFlaw("a schema has a $dynamicRef or $recursiveRef, which are not read")
        if "$ref" not in raw:
            return (
                self._legacy(raw, self._words(raw)) if self._document.legacy else self._words(raw)
            )
        reference = {"$ref": self._reference(raw["$ref"])}
        return reference if self._document.legacy else self._words(raw) | reference

    def standalone(self, schema: Schema) -> Schema:
        """With the definitions it needs. Raises `OperationFlaw`."""
        while self._pending:  # a loop, so that chains of references are not recursive
            name, target = self._pending.pop()
            self.definitions[name] = self.read(target)
        if not self.definitions or isinstance(schema, bool):
            return schema
        return {**schema, "$defs": self.definitions}

    def _count(self) -> None:
        self._document.count()
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise OperationFlaw(f"its schemas have more than {MOST_PARTS} parts")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _reference(self, reference: Any) -> str:
        target = self._document.resolve_reference(reference)
        if reference not in self._names:
            name = self._name(reference)
            self._names[reference] = name
            self._pending.append((name, target))
        return f"#/$defs/{self._names[reference]}"

    def _name(self, reference: str) -> str:
        if len(self._names) >= MOST_DEFINITIONS:
            raise OperationFlaw(f"it needs more than {MOST_DEFINITIONS} schemas of the document")
        plain = _NAME.sub("_", reference.rpartition("/")[2])[:60] or "schema"
        taken = set(self._names.values())
        return plain if plain not in taken else f"{plain}-{len(taken)}"

    def _words(self, raw: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for word, value in raw.items():
            if word in _MAPS and isinstance(value, dict):
                made[word] = {name: self.read(part) for name, part in value.items()}
            elif word in _LISTS and isinstance(value, list):
                made[word] = [self.read(part) for part in value]
            elif word in _SINGLE:
                made[word] = self.read(value)
            elif word in _PLAIN and _is_readable(value):
                made[word] = value
            elif word in _PLAIN:
                self._note(f"{word} was left out of a schema: no number of JSON is as large")
        if raw.get("format") == "password":
            made["x-sensitive"] = True  # the audit log stores no such value
        if isinstance(made.get("description"), str):
            made["description"] = normalize_text(made["description"], LONGEST_DESCRIPTION)
        return self._drop_hidden(raw, made)

    def _drop_hidden(self, raw: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        """Without what is not sent in this direction."""
        hidden = {
            name
            for name, part in made.get("properties", {}).items()
            if _has_flag(self._document, raw["properties"][name], self._hidden)
        }
        if hidden:
            made["properties"] = {
                name: part for name, part in made["properties"].items() if name not in hidden
            }
            made["required"] = [name for name in names_in(made, "required") if name not in hidden]
        return made

    @staticmethod
    def _legacy(raw: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            applies = made.get(exclusive)
            if isinstance(applies, bool):
                del made[exclusive]
            if applies is True and limit in made:
                made[exclusive] = made.pop(limit)
        return make_nullable(made) if raw.get("nullable") is True else made


def _is_readable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_readable, value.values()))
    return all(map(_is_readable, value)) if isinstance(value, list) else value is not UNREADABLE


def make_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, or null."""
    if isinstance(schema.get("type"), str):
        made = {**schema, "type": [schema["type"], "null"]}
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        return made
    said = ("title", "description", "default")
    beside = {word: part for word, part in schema.items() if word in said}
    inner = {word: part for word, part in schema.items() if word not in said}
    return {**beside, "anyOf": [inner, {"type": "null"}]} if inner else schema


def normalize_text(text: str, most: int) -> str:
    """Normalizes line ends, and truncates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _has_flag(document: OpenApiDescription, part: Any, word: str) -> bool:
    try:
        return document.resolved(part).get(word) is True if isinstance(part, dict) else False
    except OperationFlaw:
        return False
