"""The label of a tool's next version: a semantic version derived from what changed for its
callers."""

from tools.definitions.tool import Definition
from tools.definitions.values.semver import LARGEST, Version, definition_change, parse_version
from tools.errors import Conflict, InvalidDefinition
from tools.models import Tool

FIRST = "1.0.0"


def next_label(tool: Tool, canonical: Definition, wanted: str | None) -> str:
    """The one asked for, or the one that follows. A definition that is sent back as it was shown
    has the current label, which requests nothing.

    Raises `InvalidDefinition`, and `Conflict` for an existing label.
    """
    taken = set(tool.versions.values_list("label", flat=True) if tool.version else ())
    current = tool.version.label if tool.version else None
    if wanted is None or wanted == current:
        return _following(tool, canonical, taken)
    if wanted in taken:
        raise Conflict(
            f"{tool.name} has a version {wanted[:40]!r} already; versions never change.",
            code="version_exists",
        )
    _check(wanted, _highest(taken))
    return wanted


def _following(tool: Tool, canonical: Definition, taken: set[str]) -> str:
    highest = _highest(taken)
    if highest is None:
        return FIRST
    assert tool.version is not None
    return highest.bumped(definition_change(tool.version.definition, canonical)).label


def _highest(labels: set[str]) -> Version | None:
    """Skips labels from before labels had to be semantic."""
    versions = [version for version in map(parse_version, labels) if version is not None]
    return max(versions, default=None)


def _check(wanted: str, highest: Version | None) -> None:
    version = parse_version(wanted)
    if version is None:
        _refuse("must be a semantic version such as 1.2.0")
    elif max(version.major, version.minor, version.patch) > LARGEST:
        _refuse(f"may hold no number beyond {LARGEST}")
    elif highest is not None and not highest < version:
        _refuse(f"must be greater than {highest.label}, the greatest there is")


def _refuse(message: str) -> None:
    raise InvalidDefinition(
        "The definition was not accepted: see details.errors.",
        errors=[{"field": "version", "message": message}],
    )
