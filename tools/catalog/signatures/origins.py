"""Who wrote what a tool does: what nobody answers for runs at the strongest level."""

from typing import Any

from audit.actions import Actor
from tools.catalog.signatures.keys import keys_of
from tools.catalog.signatures.verified import verifies
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
    earlier = _earlier(tool, definition) if tool.version else None
    return earlier or _BY.get(by.kind, Origin.IMPORT)


def _earlier(tool: Tool, definition: Definition) -> Origin | None:
    """Of the first version with the same code for which nobody answers. What such a version says
    of itself counts as far as it is signed: where that was edited, nobody knows who wrote it."""
    same = tool.versions.filter(definition__implementation=definition["implementation"])
    keys = keys_of(tool.organization_id, distrusted=True)
    for version in same.order_by("number"):
        if not verifies(tool, version, keys):
            return Origin.IMPORT
        if version.origin not in VOUCHED:
            return Origin(version.origin)
    return None


def marked(definition: dict[str, Any]) -> bool:
    """A person says so of code that an agent wrote."""
    return bool(definition["metadata"].get("origin") == Origin.AGENT)
