"""Checks a tool's row against its signature before it is used or handed on, and the origin of its
code: code that no person answers for runs at the strongest isolation level.
"""

from collections.abc import Mapping
from typing import Any

import rfc8785

from audit.actions import Actor
from tools.catalog.signatures import versions
from tools.catalog.signatures.keys import keys_of
from tools.catalog.signatures.newest import SignatureFileState, newest
from tools.definitions.callers import CallerKind
from tools.definitions.tool import Definition, ToolDefinition
from tools.definitions.vocabulary import SIGNATURE_INVALID, ToolType
from tools.errors import Conflict
from tools.models import VOUCHED, Origin, Tool, ToolVersion

ALTERED = "The tool's stored definition is not the one that was signed."
ROLLED_BACK = "The tool was put back to an older version than was in use, not by way of a restore."
_BY: dict[str, Origin] = {
    CallerKind.PERSON: Origin.PERSON,
    CallerKind.AGENT: Origin.AGENT,
    CallerKind.SYSTEM: Origin.PRODUCT,
}


def verifies(tool: Tool, version: ToolVersion, keys: Mapping[str, bytes] | None = None) -> bool:
    """Also for rows whose definition was edited into an invalid one."""
    return version.tool_id == tool.pk and signed(
        organization=tool.organization.slug,
        name=tool.name,
        version=version,
        keys=keys_of(tool.organization_id) if keys is None else keys,
    )


def signed(
    *, organization: str, name: str, version: ToolVersion, keys: Mapping[str, bytes]
) -> bool:
    try:
        return versions.authentic(
            organization=organization,
            tool=version.tool_id,
            name=name,
            number=version.number,
            label=version.label,
            definition=ToolDefinition(version.definition),
            version_digest=version.digest,
            origin=version.origin,
            signature=version.signature,
            key_id=version.key_id,
            keys=keys,
        )
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return False


def trusted(
    tool: Tool, keys: Mapping[str, bytes] | None = None, noted: SignatureFileState | None = None
) -> bool:
    """Whether the version in use is what was signed, and no older one than was in use."""
    assert tool.version is not None
    return not _rolled_back(tool, noted) and verifies(tool, tool.version, keys)


def _rolled_back(tool: Tool, noted: SignatureFileState | None = None) -> bool:
    assert tool.version is not None
    seen = (noted or newest.read_state(tool.organization_id)).numbers
    return tool.version.number < seen.get(tool.pk, 0)


def check_current(tool: Tool) -> None:
    """Raises `Conflict` where the current version is not what was signed.

    Check the very row that is used: a second read may return something else.
    """
    assert tool.version is not None
    if _rolled_back(tool):
        raise Conflict(f"{ROLLED_BACK} An operator must see to it.", code=SIGNATURE_INVALID)
    check_version(tool, tool.version)


def check_version(tool: Tool, version: ToolVersion) -> None:
    """Raises `Conflict`."""
    if not verifies(tool, version):
        raise Conflict(
            f"The stored version {version.label[:40]} of {tool.name} is not what was signed; "
            "nothing builds on it. An operator must see to it, or delete the tool.",
            code=SIGNATURE_INVALID,
        )


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
