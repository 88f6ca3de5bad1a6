"""Who wrote what a tool does: what nobody answers for runs at the strongest level."""

from typing import Any

from audit.actions import Actor
from tools.definitions.callers import CallerKind
from tools.definitions.tool import Definition
from tools.definitions.vocabulary import ToolType
from tools.models import VOUCHED, Origin, Tool

_BY: dict[str, Origin] = {
    CallerKind.PERSON: Origin.PERSON,
    CallerKind.AGENT: Origin.AGENT,
    CallerKind.SYSTEM: Origin.PRODUCT,
}


def origin_of(tool: Tool, definition: Definition, by: Actor) -> Origin:
    """Of the next version. It goes with the code: a change around it answers for nothing."""
    if tool.type == ToolType.BUILTIN:
        return Origin.PRODUCT
    if marked(definition):
        return Origin.AGENT
    earlier = tool.versions.exclude(origin__in=VOUCHED).filter(
        definition__implementation=definition["implementation"]
    )
    known = earlier.order_by("number").values_list("origin", flat=True).first()
    return Origin(known) if known else _BY.get(by.kind, Origin.IMPORT)


def marked(definition: dict[str, Any]) -> bool:
    """A person says so of code that an agent wrote."""
    return bool(definition["metadata"].get("origin") == Origin.AGENT)
