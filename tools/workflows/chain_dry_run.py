"""Dry run of a chain: what it would do with these parameters, as far as that is known before a run.

Nothing is called. The output of an earlier step is `{"$unknown": …}`; whether a step would be
refused, or need approval, is decided by the gates themselves, in the current state.
"""

from typing import Any

from tools.authorization.facts import check_groups, question_of
from tools.catalog.snapshot import CatalogTool, Snapshot
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


class _ScopeBeforeRun:
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


def dry_run(
    tool: CatalogTool,
    parameters: dict[str, Any],
    *,
    caller: Caller,
    asked: EffectiveRequest,
    snapshot: Snapshot,
) -> dict[str, Any]:
    """The verdict about the call of the chain itself, and a preview of each step, in order.

    There is no preview of steps if the chain would not accept the parameters.
    """
    access = _AccessCheck(caller, asked, snapshot)
    errors = _schema_errors(tool, parameters)
    chain: Chain = tool.definition.chain
    given = {**tool.definition.defaults, **parameters}
    steps = [] if errors else [_preview_step(step, given, access) for step in chain.steps]
    return access.verdict(tool.name) | {"errors": errors, "steps": steps}


class _AccessCheck:
    """Asks the gates for one caller and request."""

    def __init__(self, caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> None:
        self._caller, self._asked, self.snapshot = caller, asked, snapshot

    def verdict(self, name: str) -> dict[str, Any]:
        """Why the tool would be refused, and why a call of it would need an approval."""
        tool = self.snapshot.tool(name)
        if tool is None:
            return _refused("tool_not_found", f"There is no tool {name}.")
        question = question_of(self._caller, tool, self._asked, self.snapshot)
        try:
            check_groups(self._caller, self._asked, self.snapshot)
            gates.authorize(question)
        except (Refused, Malformed) as refusal:
            return _refused(refusal.code, refusal.message)
        need = requirement_of(question, NO_OPTIONS)
        return {"refused": None, "confirmation": list(need.reasons) if need else None}


def _refused(code: str, message: str) -> dict[str, Any]:
    return {"refused": {"code": code, "message": message}, "confirmation": None}


def _preview_step(step: ChainStep, given: dict[str, Any], access: _AccessCheck) -> dict[str, Any]:
    scope = _ScopeBeforeRun(given)
    items, flaws = _loop_items(step, scope)
    at = _ScopeBeforeRun(given, items[0], loop=True) if items else scope
    parameters = _resolve_known(step.parameters, at)
    undo = str(step.compensation["tool_name"]) if step.compensation else None
    return {
        "id": step.id,
        "tool_name": step.tool_name,
        "runs": _condition(step, scope),
        "items": len(items) if items is not None else None,
        "parameters": parameters,
        **access.verdict(step.tool_name),
        "errors": flaws + _schema_errors(access.snapshot.tool(step.tool_name), parameters),
        "on_error": step.on_error,
        "compensated_by": undo,
        "compensation": access.verdict(undo) if undo else None,
    }


def _loop_items(
    step: ChainStep, scope: _ScopeBeforeRun
) -> tuple[list[Any] | None, list[dict[str, Any]]]:
    """The items of a loop, if they are known, and why the loop is invalid."""
    if not step.loop:
        return None, []
    try:
        found = expressions.resolve_value(step.for_each, scope)
    except MissingValue:
        return None, []
    if not isinstance(found, list):
        return None, [{"place": "for_each", "message": "is no list"}]
    if len(found) > MOST_ITEMS:
        message = f"has {len(found)} items, and a loop at most {MOST_ITEMS}"
        return found, [{"place": "for_each", "message": message}]
    return found, []


def _condition(step: ChainStep, scope: _ScopeBeforeRun) -> str:
    if step.when is None:
        return "yes"
    try:
        return "yes" if conditions.evaluate_condition(step.when, scope) else "no"
    except MissingValue:
        return "unknown"


def _resolve_known(value: Any, scope: _ScopeBeforeRun) -> Any:
    if expressions.reference_key(value) is not None:
        try:
            return expressions.resolve_value(value, scope)
        except MissingValue as absence:
            return {UNKNOWN: str(absence)}
    if isinstance(value, dict):
        return {key: _resolve_known(one, scope) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolve_known(one, scope) for one in value]
    return value


def _schema_errors(tool: CatalogTool | None, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the parameters, if all of them are known and the tool validates them."""
    if tool is None or _contains_unknown(parameters):
        return []
    if tool.definition.raw["argument_validation"] != ArgumentValidation.ENFORCE:
        return []
    return [flaw.as_dict() for flaw in tool.input_validator.flaws(parameters)]


def _contains_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return UNKNOWN in value or any(map(_contains_unknown, value.values()))
    return isinstance(value, list) and any(map(_contains_unknown, value))
