"""The boundary of a chain run: which calls are committed, compensated, or of unknown outcome.

It is computed from the calls only, so that a run that ends outside a turn has one, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.definitions.chains.chain_document import Chain, ChainStep
from tools.definitions.vocabulary import ToolType
from tools.execution.call import COMMITTED
from tools.models import Execution
from tools.models.execution_queryset import UNDO
from tools.workflows.nested_calls import NestedCall, absent_calls, calls_in_order


def build_boundary(chain: Chain, calls: dict[str, NestedCall]) -> dict[str, Any]:
    """`calls` are the calls of the run by place."""
    sections: dict[str, list[dict[str, Any]]] = {
        COMMITTED: [], "compensated": [], "not_compensated": [], "unknown": [],
    }  # fmt: skip
    for step, place, call in completed_calls(chain, calls):
        compensation = last_attempt(calls, f"{UNDO}{place}")[1]
        entry = {"step": step.id, "place": place, "execution_id": str(call.id)}
        if compensation is None:
            sections[COMMITTED].append(entry)
        elif compensation.succeeded:
            sections["compensated"].append(entry | {"by": str(compensation.id)})
        else:
            identifier = str(compensation.id) if compensation.id else None
            failure = {"by": identifier, "code": compensation.error_code}
            sections["not_compensated"].append(entry | failure)
    sections["unknown"] = [
        {"place": one.place, "execution_id": str(one.id)}
        for one in calls.values()
        if one.open or (not one.succeeded and may_have_effect(one))
    ]
    return sections


def boundary_details(execution: Execution, definition: Any) -> dict[str, Any]:
    """The boundary for `error_details` of a run that ends outside a turn.

    Empty for other tools, for a run without calls, and for a definition that cannot be read.
    """
    if not isinstance(definition, dict) or definition.get("type") != ToolType.CHAIN:
        return {}
    calls = {one.place: one for one in calls_in_order(execution.pk)}
    calls |= absent_calls(execution.memory)
    try:
        return build_boundary(Chain(definition["implementation"]["chain"]), calls) if calls else {}
    except (KeyError, TypeError):
        return {}


def completed_calls(
    chain: Chain, calls: dict[str, NestedCall]
) -> Iterator[tuple[ChainStep, str, NestedCall]]:
    """The calls that succeeded, the last one first, each with its place without the attempt."""
    for step in reversed(chain.steps):
        last_attempts = step_calls(step.id, calls)
        succeeded = [(place, call) for place, call in last_attempts.items() if call.succeeded]
        for place, call in reversed(succeeded):
            yield step, place, call


def step_calls(step: str, calls: dict[str, NestedCall]) -> dict[str, NestedCall]:
    """The last attempts of a step's calls by place, in the order of a loop's items."""
    last_attempts: dict[str, NestedCall] = {}
    for place in calls:
        base = place.partition("#")[0]
        if base == step or base.startswith(f"{step}/"):
            attempt = last_attempt(calls, base)[1]
            if attempt is not None:
                last_attempts[base] = attempt
    return dict(sorted(last_attempts.items(), key=lambda item: item_number(item[0])))


def last_attempt(calls: Mapping[str, NestedCall], place: str) -> tuple[int, NestedCall | None]:
    """The number of the last attempt, and its call."""
    attempt, call = 1, calls.get(place)
    while (later := calls.get(f"{place}#{attempt + 1}")) is not None:
        attempt, call = attempt + 1, later
    return attempt, call


def may_have_effect(call: NestedCall) -> bool:
    """Whether a call that did not succeed may have had an effect."""
    return bool((call.error_details or {}).get("effect_possible")) or (
        call.error_code == "OUTCOME_UNKNOWN"
    )


def item_number(place: str) -> int:
    """The number of a loop's item; -1 for other places."""
    _, _, number = place.partition("/")
    return int(number) if number else -1
