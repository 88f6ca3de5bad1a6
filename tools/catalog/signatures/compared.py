"""Compares two versions of a tool."""

from tools.definitions.differences import DefinitionDifference, compare_definitions
from tools.definitions.tool import ordered_if_valid
from tools.errors import NotFound
from tools.models import Tool, ToolVersion


def compare_versions(
    tool: Tool, before: str, after: str | None
) -> tuple[ToolVersion, ToolVersion, list[DefinitionDifference]]:
    """By their labels; `after` is the current one where it is not named. Raises `NotFound`."""
    old = find_version(tool, before)
    new = find_version(tool, after) if after else tool.version
    assert new is not None
    return (
        old,
        new,
        compare_definitions(ordered_if_valid(old.definition), ordered_if_valid(new.definition)),
    )


def find_version(tool: Tool, label: str) -> ToolVersion:
    """Raises `NotFound`."""
    found = tool.versions.filter(label=label).first() if "\x00" not in label else None
    if found is None:
        raise NotFound(f"{tool.name} has no version {label[:40]!r}.", code="version_not_found")
    return found
