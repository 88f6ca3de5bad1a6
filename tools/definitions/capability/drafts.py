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
from tools.definitions.chains.types import Doubt, Interface, find_type_doubts
from tools.definitions.chains.written import chain_definition
from tools.definitions.schemas.schema_parts import child_pointer
from tools.definitions.schemas.schema_reach import inline_references
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


def draft_proposal(
    plan: CapabilityPlan,
    wish: PlanningTarget,
    interfaces: Mapping[str, Interface],
    taken: frozenset[str],
) -> Proposal | None:
    """None where a step cannot be called that way."""
    draft = _ChainDraft(plan, wish)
    document = draft.document(_free_chain_name(wish, taken))
    try:
        definition: Definition = read_definition(chain_definition(document))
    except (
        InvalidDefinition
    ):  # too large, or a parameter is named like a reference: it could not be saved
        return None
    chain = Chain(definition["implementation"]["chain"])
    found = find_type_doubts(chain, Interface.of(definition), interfaces)
    if any(one.certain for one in found):
        return None
    return Proposal(plan, document, draft.links, draft.lacks, found)


@dataclass
class _ChainDraft:
    plan: CapabilityPlan
    wish: PlanningTarget
    links: list[Raw] = field(default_factory=list)
    lacks: list[Raw] = field(default_factory=list)
    _parameters: dict[str, Any] = field(default_factory=dict)
    _ids: dict[int, str] = field(default_factory=dict)

    def document(self, name: str) -> Raw:
        steps = [self._draft_step(call) for call in self.plan.calls]
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
            made["output"] = _step_reference(steps[-1]["id"], wanted.pointer)
        return made

    def _draft_step(self, call: CapabilityCall) -> Raw:
        step = self._ids[call.place] = self._free_step_id(call.node.name)
        given: Raw = {}
        lacking = {port.name for port in call.lacking}
        for port in call.node.consumes:
            if port.only:
                given[port.name] = _as_literal(json.loads(port.only))
            elif port.name in call.sources:
                given[port.name] = self._given_parameter(step, port, call.sources[port.name])
            elif port.name in lacking:
                given[port.name] = self._missing_parameter(step, call, port)
        return {"id": step, "tool_name": call.node.name, "parameters": given}

    def _given_parameter(self, step: str, port: Port, source: ValueSource) -> Raw:
        said = {"step": step, "parameter": port.name, "fit": str(source.link.fit),
                "why": list(source.link.why)}  # fmt: skip
        if source.place == GIVEN:
            name = source.given.name
            schema = _port_schema(source.given) or _port_schema(port)
            self._parameters[name] = _combine_schemas(self._parameters.get(name), schema)
            self.links.append(said | {"from": {"given": name}})
            return {values.INPUT: child_pointer("", name)}
        origin = _step_reference(self._ids[source.place], source.given.pointer)
        self.links.append(said | {"from": {"step": origin[values.STEP], "path": origin["path"]}})
        return origin

    def _missing_parameter(self, step: str, call: CapabilityCall, port: Port) -> Raw:
        schema = _port_schema(port) | {"description": f"{port.name} of {call.node.name}."}
        name = port.name
        if name in self._parameters or any(name == one for one in self._given_names()):
            name = f"{step}_{port.name}"
        self._parameters[name] = schema
        self.lacks.append({"name": name, "step": step, "parameter": port.name, "schema": schema})
        return {values.INPUT: child_pointer("", name)}

    def _given_names(self) -> list[str]:
        return [one.given.name for one in self.plan.sources if one.place == GIVEN]

    def _free_step_id(self, tool: str) -> str:
        plain = _NO_ID.sub("_", tool.lower())[:_LONGEST_ID]
        stem = plain if plain[:1].isalpha() else f"s{plain}"
        used = self._ids.values()
        return next(one for one in _numbered_names(stem) if one not in used)

    def _description(self) -> str:
        had = ", ".join(dict.fromkeys(self._given_names())) or "nothing"
        return f"From {had} to {self.wish.called}, by {', '.join(self.plan.names)}."[:2_000]


def _free_chain_name(wish: PlanningTarget, taken: frozenset[str]) -> str:
    words = re.sub(r"[^A-Za-z0-9_.-]+", "_", wish.called).strip("_")[:_LONGEST_NAME]
    return next(one for one in _numbered_names(f"get_{words}") if one not in taken)


def _numbered_names(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, 100_000):
        yield f"{stem}_{number}"


def _step_reference(step: str, pointer: str) -> Raw:
    return {values.STEP: step, "path": f"{values.OUTPUT}{pointer}"}


def _as_literal(value: Any) -> Any:
    """A value in which nothing is taken for a reference."""
    return {values.LITERAL: value} if any(values.find_references(value)) else value


def _port_schema(port: Port) -> Raw:
    """As a schema that may be part of the chain's schema."""
    if port.schema in ("", TOO_LARGE):
        return {}
    schema = json.loads(port.schema)
    alone = inline_references(schema, schema)
    return alone if isinstance(alone, dict) else {}


def _combine_schemas(known: Any, schema: Raw) -> Raw:
    return schema if known in (None, schema) else {"allOf": [known, schema]}
