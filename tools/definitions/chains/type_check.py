"""Type-checks a chain: whether the output schemas of its steps fit the input schemas of later ones.

A certain mismatch is an error of the chain. An uncertain one is a warning: an output with a loose
schema may fit, and the call itself validates it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.definitions.chains import conditions, expressions
from tools.definitions.chains.chain_document import Chain, ChainStep
from tools.definitions.chains.expressions import ValueReference
from tools.definitions.schemas.compatibility import find_misfits
from tools.definitions.schemas.schema_parts import (
    EVERY_KIND,
    allowed_kinds,
    inline_references,
    kind_names,
    schema_at_pointer,
    value_kind,
)
from tools.definitions.vocabulary import ArgumentValidation

_DEEPEST = 20
_ANY_SCHEMA = True
_NUMBERS, _TEXTS = frozenset({"integer", "fraction"}), frozenset({"string"})


@dataclass(frozen=True, slots=True)
class Interface:
    """The input schema of a tool, and its output schema where it has one."""

    takes: Any
    gives: Any = _ANY_SCHEMA

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> "Interface":
        """A tool whose arguments are not checked takes anything."""
        checked = definition["argument_validation"] == ArgumentValidation.ENFORCE
        gives = definition.get("output_schema") or _ANY_SCHEMA
        return cls(definition["input_schema"] if checked else _ANY_SCHEMA, gives)


@dataclass(frozen=True, slots=True)
class Doubt:
    """`place` is in the chain; `certain` says that no value would fit."""

    place: str
    message: str
    certain: bool


def find_type_doubts(chain: Chain, own: Interface, tools: Mapping[str, Interface]) -> list[Doubt]:
    """Of all steps, in their order; missing tools are reported elsewhere."""
    return _TypeChecker(chain, own, tools).check()


class _TypeChecker:
    def __init__(self, chain: Chain, own: Interface, tools: Mapping[str, Interface]) -> None:
        self._chain, self._tools = chain, tools
        self._input, self._gives = inline_references(own.takes, own.takes), own.gives
        self._outputs: dict[str, Any] = {}
        self._item: Any = _ANY_SCHEMA
        self._found: list[Doubt] = []

    def check(self) -> list[Doubt]:
        for number, step in enumerate(self._chain.steps):
            self._check_step(step, f"steps.{number}")
        self._check_output()
        return self._found

    def _check_step(self, step: ChainStep, place: str) -> None:
        if step.when is not None:
            self._check_condition(step, place)
        if step.loop:
            listed = self._value_schema(step.for_each, f"{place}.for_each")
            self._check_fit(listed, {"type": "array"}, f"{place}.for_each")
            self._item = self._item_schema(step.for_each, listed, f"{place}.for_each")
        self._check_call(step.tool_name, step.parameters, f"{place}.parameters")
        tool = self._tools.get(step.tool_name)
        gives = inline_references(tool.gives, tool.gives) if tool else _ANY_SCHEMA
        self._outputs[step.id] = gives  # a loop item's compensation gets its output
        if step.compensation_step:
            where = f"{place}.compensate_with.parameters"
            self._check_call(
                step.compensation_step.tool_name, step.compensation_step.parameters, where
            )
        if step.loop:
            failed = step.on_error == "continue"
            gives = {"anyOf": [gives, {"type": "null"}]} if failed else gives
            self._outputs[step.id] = {"type": "array", "items": gives}

    def _check_output(self) -> None:
        """Checks the output against the chain's own output schema."""
        last = {expressions.STEP: self._chain.steps[-1].id}
        given = self._value_schema(self._chain.raw.get("output", last), "output")
        self._check_fit(given, self._gives, "output")

    def _check_condition(self, step: ChainStep, place: str) -> None:
        """What it compares must exist; values that can never be equal or less are allowed."""
        found = list(conditions.comparisons(step.when, f"{place}.when"))
        asked_for = [one.values[0] for one in found if one.word == "exists"]
        for one in found:
            if one.word == "exists":
                continue
            guarded = [given in asked_for for given in one.values]
            sides = [
                self._operand_schema(given, f"{one.place}.{at}", guarded=guarded[at])
                for at, given in enumerate(one.values)
            ]
            left, right = map(_possible_kinds, sides)
            if not _may_hold(one.word, left, right):
                said = f"never holds: one is {kind_names(left)}, the other {kind_names(right)}"
                self._found.append(Doubt(one.place, said, certain=False))

    def _operand_schema(self, given: Any, place: str, *, guarded: bool) -> Any:
        """A value whose existence the condition checks may be missing."""
        before = len(self._found)
        schema = self._value_schema(given, place)
        if guarded:
            self._found[before:] = [one for one in self._found[before:] if one.certain]
        return schema

    def _item_schema(self, given: Any, listed: Any, place: str) -> Any:
        if isinstance(given, list):
            return (
                {"anyOf": [self._value_schema(one, place) for one in given]}
                if given
                else _ANY_SCHEMA
            )
        return schema_at_pointer(listed, "/0").schema

    def _check_call(self, name: str, parameters: dict[str, Any], place: str) -> None:
        tool = self._tools.get(name)
        if tool is not None:
            self._check_fit(self._value_schema(parameters, place), tool.takes, place)

    def _check_fit(self, given: Any, taken: Any, place: str) -> None:
        for one in find_misfits(given, taken):
            if one.bound:
                continue  # few schemas bound their texts: the call validates it
            steps = one.path.replace("/*", ".*").replace("/", ".")
            self._found.append(Doubt(f"{place}{steps}", one.message, one.certain))

    def _value_schema(self, value: Any, place: str, depth: int = 0) -> Any:
        """A schema of what a value can be."""
        mark = expressions.reference_key(value)
        if mark is not None:
            return self._reference_schema(ValueReference(place, mark, value))
        if depth > _DEEPEST:
            return _ANY_SCHEMA
        if isinstance(value, dict):
            parts = {
                key: self._value_schema(one, f"{place}.{key}", depth + 1)
                for key, one in value.items()
            }
            return {
                "type": "object",
                "properties": parts,
                "required": [*parts],
                "additionalProperties": False,
            }
        if isinstance(value, list) and any(expressions.find_references(value)):
            items = [
                self._value_schema(one, f"{place}.{at}", depth + 1) for at, one in enumerate(value)
            ]
            return {"type": "array", "items": {"anyOf": items}, "minItems": len(items)}
        return {"const": value}

    def _reference_schema(self, one: ValueReference) -> Any:
        if one.mark == expressions.LITERAL:
            return {"const": one.raw[expressions.LITERAL]}
        if one.mark == expressions.TEXT:
            return {"type": "string"}
        found = schema_at_pointer(self._reference_root(one), one.pointer)
        if found.never and not one.has_default:
            self._found.append(Doubt(one.place, f"{found.missing}: {one.pointer}", certain=True))
            return _ANY_SCHEMA
        if found.missing and not one.has_default:
            self._found.append(Doubt(one.place, f"{found.missing}: {one.pointer}", certain=False))
        if one.has_default:
            default = {"const": one.raw["default"]}
            return default if found.never else {"anyOf": [found.schema, default]}
        return found.schema

    def _reference_root(self, one: ValueReference) -> Any:
        if one.mark == expressions.INPUT:
            return self._input
        if one.mark == expressions.ITEM:
            return self._item
        return self._outputs.get(one.step, _ANY_SCHEMA)


def _possible_kinds(schema: Any) -> frozenset[str]:
    """The possible kinds of a value, by its schema."""
    if not isinstance(schema, dict):
        return EVERY_KIND
    if "const" in schema:
        return frozenset({value_kind(schema["const"])})
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return frozenset().union(*map(_possible_kinds, schema[word])) & allowed_kinds(schema)
    return allowed_kinds(schema)


def _may_hold(word: str, left: frozenset[str], right: frozenset[str]) -> bool:
    """As conditions compare: only what is of one kind."""
    if word == "equals":
        return bool(left & right)
    if word == "contains":
        return "array" in left or ("string" in left and "string" in right)
    return any(left & one and right & one for one in (_NUMBERS, _TEXTS))
