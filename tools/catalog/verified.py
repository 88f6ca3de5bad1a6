"""Whether what a row says of a tool is what was signed: asked before it is handed on."""

from collections.abc import Mapping

import rfc8785

from tools.catalog import versions
from tools.catalog.signing_keys import trusted_keys
from tools.definitions.tool import ToolDefinition
from tools.models import Tool, ToolVersion


def verifies(tool: Tool, version: ToolVersion, keys: Mapping[str, str] | None = None) -> bool:
    """Also for rows that somebody edited into what is no definition at all.

    `keys` are the organization's trusted ones, where they are known already.
    """
    slug = tool.organization.slug
    if keys is None:
        keys = trusted_keys(tool.organization_id, slug)
    try:
        return versions.authentic(
            organization=slug,
            name=tool.name,
            number=version.number,
            label=version.label,
            definition=ToolDefinition(version.definition),
            version_digest=version.digest,
            origin=version.origin,
            signature=version.signature,
            key_id=version.key_id,
            keys=keys,
            resigned=[(one.key_id, one.signature) for one in version.resigned.all()],
        )
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return False


def in_use(tool: Tool, keys: Mapping[str, str]) -> bool:
    """Whether the version the row names was signed as the one in use."""
    return tool.version is not None and versions.in_use(
        organization=tool.organization.slug,
        name=tool.name,
        number=tool.version.number,
        key_id=tool.head_key_id,
        signature=tool.head_signature,
        keys=keys,
    )
