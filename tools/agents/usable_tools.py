"""What a caller may use at one moment, in any state: the basis for checking a plan.

A step is checked before it is taken, so that an impossible step leads to no approval and no call.
Every gate still checks the call.
"""

from dataclasses import dataclass
from typing import Any

from tools.agents.planning.plan_language import PlanStep
from tools.agents.toolbox import usable_by
from tools.authorization.facts import check_groups_uncounted, question_of
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.chains import expressions
from tools.definitions.schemas.json_schemas import SchemaFlaw
from tools.definitions.vocabulary import ArgumentValidation
from tools.errors import Malformed, Refused
from tools.policy import gates
from tools.policy.questions import EffectiveRequest


@dataclass(frozen=True, slots=True)
class Barred:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Ground:
    caller: Caller
    groups: frozenset[str]
    snapshot: Snapshot

    def bar(self, name: str, state: str) -> Barred | None:
        """Why the tool may not be used in this state; None where it may."""
        asked, tool = EffectiveRequest(self.groups, state), self.snapshot.tool(name)
        try:
            check_groups_uncounted(self.caller, asked, self.snapshot)
            if tool is not None:
                gates.authorize(question_of(self.caller, tool, asked, self.snapshot))
        except (Refused, Malformed) as refusal:
            return Barred(refusal.code, refusal.message)
        if tool is None or tool not in usable_by(self.caller, asked, self.snapshot):
            return Barred("tool_not_found", f"There is no tool {name} for agents here.")
        return None

    def state_after(self, name: str, state: str) -> str:
        """Where the tool leads from a state when it succeeds (specification S1, 4.2)."""
        tool = self.snapshot.tool(name)
        after = tool.definition.raw["state"] if tool is not None else None
        return state if after is None else str(after)

    def flaws_of(self, steps: list[PlanStep], state: str) -> list[str]:
        """What would be refused of a plan, taken in this order from a state on."""
        found = []
        for step in steps:
            if (bar := self.bar(step.tool, state)) is not None:
                found.append(f"step {step.id}: {bar.message}")
            elif (tool := self.snapshot.tool(step.tool)) is not None:
                found += [f"step {step.id}: {flaw}" for flaw in _flaws(tool, step.arguments)]
            state = self.state_after(step.tool, state)
        return found


def _flaws(tool: CatalogTool, arguments: dict[str, Any]) -> list[str]:
    """Of the arguments, except those that contain a reference."""
    if tool.definition.raw["argument_validation"] != ArgumentValidation.ENFORCE:
        return []
    places = [one.place.replace(".", "/") for one in expressions.find_references(arguments)]
    if not places:
        return [_told(flaw) for flaw in tool.input_validator.flaws(arguments)]
    flaws = tool.input_validator.flaws(arguments, masked=True)
    clear = [_told(flaw) for flaw in flaws if not any(_touch(flaw.place, at) for at in places)]
    return [*_names_amiss(tool.definition.raw["input_schema"], arguments), *clear]


def _told(flaw: SchemaFlaw) -> str:
    return f"its argument {flaw.place} does not fit: {flaw.message}"


def _touch(one: str, other: str) -> bool:
    """Whether one of two places lies in the other."""
    one, other = one.rstrip("/"), other.rstrip("/")
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _names_amiss(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """Checks names of arguments, which are known also where a value is a reference."""
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    known = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False
    unknown = [name for name in arguments if name not in known] if closed else []
    return [f"its argument {name} is missing" for name in missing] + [
        f"it has no argument {name[:80]}" for name in unknown
    ]
