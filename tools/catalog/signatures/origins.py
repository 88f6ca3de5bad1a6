"""The origin of a tool's code: code that no person answers for runs at the strongest isolation
level."""

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
    """The origin of the next version. It belongs to the code: a change of other fields keeps it."""
    if tool.type == ToolType.BUILTIN:
        return Origin.PRODUCT
    if is_marked_as_agents(definition):
        return Origin.AGENT
    earlier = _earlier_origin(tool, definition) if tool.version else None
    return earlier or _BY.get(by.kind, Origin.IMPORT)


def _earlier_origin(tool: Tool, definition: Definition) -> Origin | None:
    """The origin of the first version with the same code that no person answers for. The stored
    origin counts only if its signature is valid: of an edited row the author is unknown."""
    same = tool.versions.filter(definition__implementation=definition["implementation"])
    keys = keys_of(tool.organization_id, distrusted=True)
    for version in same.order_by("number"):
        if not verifies(tool, version, keys):
            return Origin.IMPORT
        if version.origin not in VOUCHED:
            return Origin(version.origin)
    return None


def is_marked_as_agents(definition: dict[str, Any]) -> bool:
    """Whether a person marked the code as written by an agent."""
    return bool(definition["metadata"].get("origin") == Origin.AGENT)
