"""Drafts a chain from a plan, and lists what it still lacks.

Given values and those that no tool produces become parameters of the chain; outputs of steps become
references. The draft is parsed and its types are checked as when a chain is saved.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.capability.plans import CapabilityCall, CapabilityPlan
from tools.definitions.capability.ports import TOO_LARGE, Port
from tools.definitions.capability.search import GIVEN, ValueSource
from tools.definitions.capability.wishes import PlanningTarget
from tools.definitions.chains import values
from tools.definitions.chains.document import Chain
from tools.definitions.chains.types import Doubt, Interface, doubts
from tools.definitions.chains.written import definition_of
from tools.definitions.schemas.schema_parts import below
from tools.definitions.schemas.schema_reach import inlined
from tools.definitions.tool import Definition, read_definition
from tools.errors import InvalidDefinition

_NO_ID = re.compile(r"[^a-z0-9_-]")
_LONGEST_ID = 56
_LONGEST_NAME = 120
Raw = dict[str, Any]


@dataclass(frozen=True)
class Proposal:
    """`document` is the body of a request that would create the chain."""

    plan: CapabilityPlan
    document: Raw
    links: list[Raw]
    lacks: list[Raw]
    warnings: list[Doubt]


def proposal(
    plan: CapabilityPlan,
    wish: PlanningTarget,
    interfaces: Mapping[str, Interface],
    taken: frozenset[str],
) -> Proposal | None:
    """None where a step cannot be called that way."""
    draft = _Draft(plan, wish)
    document = draft.document(_name(wish, taken))
    try:
        definition: Definition = read_definition(definition_of(document))
    except (
        InvalidDefinition
    ):  # too large, or a parameter is named like a reference: it could not be saved
        return None
    chain = Chain(definition["implementation"]["chain"])
    found = doubts(chain, Interface.of(definition), interfaces)
    if any(one.certain for one in found):
        return None
    return Proposal(plan, document, draft.links, draft.lacks, found)


@dataclass
class _Draft:
    plan: CapabilityPlan
    wish: PlanningTarget
    links: list[Raw] = field(default_factory=list)
    lacks: list[Raw] = field(default_factory=list)
    _parameters: dict[str, Any] = field(default_factory=dict)
    _ids: dict[int, str] = field(default_factory=dict)

    def document(self, name: str) -> Raw:
        steps = [self._step(call) for call in self.plan.calls]
        made: Raw = {
            "name": name,
            "description": self._description(),
            "input_schema": {
                "type": "object",
                "properties": self._parameters,
                "required": [*self._parameters],
                "additionalProperties": False,
            },
            "steps": steps,
        }
        wanted = self.plan.goal.given
        if wanted is not None:
            made["output"] = _reference(steps[-1]["id"], wanted.pointer)
        return made

    def _step(self, call: CapabilityCall) -> Raw:
        step = self._ids[call.place] = self._id(call.node.name)
        given: Raw = {}
        lacking = {port.name for port in call.lacking}
        for port in call.node.consumes:
            if port.only:
                given[port.name] = _literal(json.loads(port.only))
            elif port.name in call.sources:
                given[port.name] = self._given(step, port, call.sources[port.name])
            elif port.name in lacking:
                given[port.name] = self._lacking(step, call, port)
        return {"id": step, "tool_name": call.node.name, "parameters": given}

    def _given(self, step: str, port: Port, source: ValueSource) -> Raw:
        said = {"step": step, "parameter": port.name, "fit": str(source.link.fit),
                "why": list(source.link.why)}  # fmt: skip
        if source.place == GIVEN:
            name = source.given.name
            schema = _schema(source.given) or _schema(port)
            self._parameters[name] = _both(self._parameters.get(name), schema)
            self.links.append(said | {"from": {"given": name}})
            return {values.INPUT: below("", name)}
        origin = _reference(self._ids[source.place], source.given.pointer)
        self.links.append(said | {"from": {"step": origin[values.STEP], "path": origin["path"]}})
        return origin

    def _lacking(self, step: str, call: CapabilityCall, port: Port) -> Raw:
        schema = _schema(port) | {"description": f"{port.name} of {call.node.name}."}
        name = port.name
        if name in self._parameters or any(name == one for one in self._had()):
            name = f"{step}_{port.name}"
        self._parameters[name] = schema
        self.lacks.append({"name": name, "step": step, "parameter": port.name, "schema": schema})
        return {values.INPUT: below("", name)}

    def _had(self) -> list[str]:
        return [one.given.name for one in self.plan.sources if one.place == GIVEN]

    def _id(self, tool: str) -> str:
        plain = _NO_ID.sub("_", tool.lower())[:_LONGEST_ID]
        stem = plain if plain[:1].isalpha() else f"s{plain}"
        used = self._ids.values()
        return next(one for one in _numbered(stem) if one not in used)

    def _description(self) -> str:
        had = ", ".join(dict.fromkeys(self._had())) or "nothing"
        return f"From {had} to {self.wish.called}, by {', '.join(self.plan.names)}."[:2_000]


def _name(wish: PlanningTarget, taken: frozenset[str]) -> str:
    words = re.sub(r"[^A-Za-z0-9_.-]+", "_", wish.called).strip("_")[:_LONGEST_NAME]
    return next(one for one in _numbered(f"get_{words}") if one not in taken)


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, 100_000):
        yield f"{stem}_{number}"


def _reference(step: str, pointer: str) -> Raw:
    return {values.STEP: step, "path": f"{values.OUTPUT}{pointer}"}


def _literal(value: Any) -> Any:
    """A value in which nothing is taken for a reference."""
    return {values.LITERAL: value} if any(values.references(value)) else value


def _schema(port: Port) -> Raw:
    """As a schema that may be part of the chain's schema."""
    if port.schema in ("", TOO_LARGE):
        return {}
    schema = json.loads(port.schema)
    alone = inlined(schema, schema)
    return alone if isinstance(alone, dict) else {}


def _both(known: Any, schema: Raw) -> Raw:
    return schema if known in (None, schema) else {"allOf": [known, schema]}
