"""The boundary of a run of a chain: what stays done, what was undone, and what is unknown.

Found from its calls alone, so that a run that ends without a turn of its own says it, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.definitions.chains.chain_document import Chain, ChainStep
from tools.definitions.vocabulary import ToolType
from tools.execution.call import COMMITTED
from tools.models import Execution
from tools.models.execution_queryset import UNDO
from tools.workflows.nested_calls import NestedCall, absent_calls, calls_in_order


def boundary(chain: Chain, made: dict[str, NestedCall]) -> dict[str, Any]:
    """`made` holds the calls of the run by their places."""
    found: dict[str, list[dict[str, Any]]] = {
        COMMITTED: [], "compensated": [], "not_compensated": [], "unknown": [],
    }  # fmt: skip
    for step, place, call in done(chain, made):
        undoing = last_attempt(made, f"{UNDO}{place}")[1]
        reference = {"step": step.id, "place": place, "execution_id": str(call.id)}
        if undoing is None:
            found[COMMITTED].append(reference)
        elif undoing.succeeded:
            found["compensated"].append(reference | {"by": str(undoing.id)})
        else:
            why = {"by": str(undoing.id) if undoing.id else None, "code": undoing.error_code}
            found["not_compensated"].append(reference | why)
    found["unknown"] = [
        {"place": one.place, "execution_id": str(one.id)}
        for one in made.values()
        if one.open or (not one.succeeded and may_have_happened(one))
    ]
    return found


def end_of(execution: Execution, definition: Any) -> dict[str, Any]:
    """For `error_details` of a run that no turn of its own ends, where it has made calls.

    Nothing for other tools, nor for what cannot be read, since it was written past the product.
    """
    if not isinstance(definition, dict) or definition.get("type") != ToolType.CHAIN:
        return {}
    calls = {one.place: one for one in calls_in_order(execution.pk)}
    calls |= absent_calls(execution.memory)
    try:
        return boundary(Chain(definition["implementation"]["chain"]), calls) if calls else {}
    except (KeyError, TypeError):
        return {}


def done(chain: Chain, made: dict[str, NestedCall]) -> Iterator[tuple[ChainStep, str, NestedCall]]:
    """What succeeded, the last first: each with the place of its call, without the attempt."""
    for step in reversed(chain.steps):
        calls = [(place, call) for place, call in calls_of(step.id, made).items() if call.succeeded]
        for place, call in reversed(calls):
            yield step, place, call


def calls_of(step: str, made: dict[str, NestedCall]) -> dict[str, NestedCall]:
    """Its last attempts by place, in the order of a loop's items."""
    found: dict[str, NestedCall] = {}
    for place in made:
        base = place.partition("#")[0]
        if base == step or base.startswith(f"{step}/"):
            attempt = last_attempt(made, base)[1]
            if attempt is not None:
                found[base] = attempt
    return dict(sorted(found.items(), key=lambda one: number_of(one[0])))


def last_attempt(made: Mapping[str, NestedCall], place: str) -> tuple[int, NestedCall | None]:
    attempt, call = 1, made.get(place)
    while (later := made.get(f"{place}#{attempt + 1}")) is not None:
        attempt, call = attempt + 1, later
    return attempt, call


def may_have_happened(made: NestedCall) -> bool:
    """Whether it may have had an effect, though it did not succeed."""
    return bool((made.error_details or {}).get("effect_possible")) or (
        made.error_code == "OUTCOME_UNKNOWN"
    )


def number_of(place: str) -> int:
    """Of an item of a loop; -1 where there is none."""
    _, _, number = place.partition("/")
    return int(number) if number else -1
