"""Whether what a row says of a tool is what was signed: asked before it is handed on."""

import rfc8785

from tools.catalog import versions
from tools.definitions.tool import ToolDefinition
from tools.models import Tool, ToolVersion


def verifies(tool: Tool, version: ToolVersion) -> bool:
    """Also for rows that somebody edited into what is no definition at all."""
    try:
        return versions.authentic(
            organization=tool.organization.slug,
            name=tool.name,
            number=version.number,
            label=version.label,
            definition=ToolDefinition(version.definition),
            version_digest=version.digest,
            origin=version.origin,
            signature=version.signature,
            key_id=version.key_id,
        )
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return False
