"""Dry run of a chain: what it would do with these parameters, as far as that is known beforehand.

Nothing is called. The output of an earlier step is `{"$unknown": …}`; whether a step would be
refused, or need approval, is decided by the gates themselves, in the current state.
"""

from typing import Any

from tools.authorization.facts import check_groups, question_of
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.chains import conditions, expressions
from tools.definitions.chains.chain_document import MOST_ITEMS, Chain, ChainStep
from tools.definitions.chains.expressions import MissingValue
from tools.definitions.vocabulary import ArgumentValidation
from tools.errors import Malformed, Refused
from tools.policy import gates
from tools.policy.approval_requirements import requirement_of
from tools.policy.questions import NO_OPTIONS, EffectiveRequest

UNKNOWN = "$unknown"


class _Beforehand:
    """A scope in which no step has run."""

    def __init__(self, given: dict[str, Any], item: Any = None, *, loop: bool = False) -> None:
        self.input, self._item, self._loop = given, item, loop

    def output(self, step: str) -> Any:
        raise MissingValue(f"what {step} gives back is known when it has run")

    def outputs(self, text: str) -> dict[str, Any]:
        if "steps" in text:
            raise MissingValue("it names steps that have not run")
        return {}

    def item(self) -> Any:
        if not self._loop:
            raise MissingValue("the item is known when the list is")
        return self._item

    def state(self, step: str) -> str:
        raise MissingValue(f"how {step} ends is known when it has run")


def rehearse(
    tool: CatalogTool,
    parameters: dict[str, Any],
    *,
    caller: Caller,
    asked: EffectiveRequest,
    snapshot: Snapshot,
) -> dict[str, Any]:
    """What would become of the call of the chain itself, and a line for each step, in their order.

    There are no lines where the chain would not take the parameters: nothing would come of them.
    """
    about = _About(caller, asked, snapshot)
    errors = _errors(tool, parameters)
    chain: Chain = tool.definition.chain
    given = {**tool.definition.defaults, **parameters}
    steps = [] if errors else [_line(step, given, about) for step in chain.steps]
    return about.tool(tool.name) | {"errors": errors, "steps": steps}


class _About:
    """Who asks, and in what: the gates are asked in that name."""

    def __init__(self, caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> None:
        self._caller, self._asked, self.snapshot = caller, asked, snapshot

    def tool(self, name: str) -> dict[str, Any]:
        return _of_tool(self.snapshot.tool(name), name, self._caller, self._asked, self.snapshot)


def _line(step: ChainStep, given: dict[str, Any], about: _About) -> dict[str, Any]:
    scope = _Beforehand(given)
    items, flaws = _items(step, scope)
    at = _Beforehand(given, items[0], loop=True) if items else scope
    parameters = _as_known(step.parameters, at)
    undo = str(step.compensation["tool_name"]) if step.compensation else None
    return {
        "id": step.id,
        "tool_name": step.tool_name,
        "runs": _runs(step, scope),
        "items": len(items) if items is not None else None,
        "parameters": parameters,
        **about.tool(step.tool_name),
        "errors": flaws + _errors(about.snapshot.tool(step.tool_name), parameters),
        "on_error": step.on_error,
        "compensated_by": undo,
        "compensation": about.tool(undo) if undo else None,
    }


def _items(step: ChainStep, scope: _Beforehand) -> tuple[list[Any] | None, list[dict[str, Any]]]:
    """What its loop is about, where that is known, and why there can be no such loop."""
    if not step.loop:
        return None, []
    try:
        found = expressions.resolve_value(step.for_each, scope)
    except MissingValue:
        return None, []
    if not isinstance(found, list):
        return None, [{"place": "for_each", "message": "is no list"}]
    if len(found) > MOST_ITEMS:
        told = f"has {len(found)} items, and a loop at most {MOST_ITEMS}"
        return found, [{"place": "for_each", "message": told}]
    return found, []


def _runs(step: ChainStep, scope: _Beforehand) -> str:
    if step.when is None:
        return "yes"
    try:
        return "yes" if conditions.evaluate_condition(step.when, scope) else "no"
    except MissingValue:
        return "unknown"


def _as_known(value: Any, scope: _Beforehand) -> Any:
    if expressions.reference_key(value) is not None:
        try:
            return expressions.resolve_value(value, scope)
        except MissingValue as absence:
            return {UNKNOWN: str(absence)}
    if isinstance(value, dict):
        return {key: _as_known(one, scope) for key, one in value.items()}
    if isinstance(value, list):
        return [_as_known(one, scope) for one in value]
    return value


def _of_tool(
    tool: CatalogTool | None, name: str, caller: Caller, asked: EffectiveRequest, snapshot: Snapshot
) -> dict[str, Any]:
    if tool is None:
        refused = {"code": "tool_not_found", "message": f"There is no tool {name}."}
        return {"refused": refused, "confirmation": None}
    question = question_of(caller, tool, asked, snapshot)
    try:
        check_groups(caller, asked, snapshot)
        gates.authorize(question)
    except (Refused, Malformed) as refusal:
        refused = {"code": refusal.code, "message": refusal.message}
        return {"refused": refused, "confirmation": None}
    need = requirement_of(question, NO_OPTIONS)
    return {"refused": None, "confirmation": list(need.reasons) if need else None}


def _errors(tool: CatalogTool | None, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the parameters, where all of them are known and the tool holds them against its schema."""
    if tool is None or _holds_unknown(parameters):
        return []
    if tool.definition.raw["argument_validation"] != ArgumentValidation.ENFORCE:
        return []
    return [flaw.as_dict() for flaw in tool.input_validator.flaws(parameters)]


def _holds_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return UNKNOWN in value or any(map(_holds_unknown, value.values()))
    return isinstance(value, list) and any(map(_holds_unknown, value))
