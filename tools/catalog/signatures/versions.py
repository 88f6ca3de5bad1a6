"""Versions of a tool: their labels and differences, and caches of compiled validators and verified
signatures.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from tools.definitions import signing
from tools.definitions.differences import DefinitionDifference, compare_definitions
from tools.definitions.schemas.json_schemas import Validator
from tools.definitions.tool import Definition, ToolDefinition, ordered_if_valid
from tools.definitions.values.semver import LARGEST, Version, definition_change, parse_version
from tools.errors import Conflict, InvalidDefinition, NotFound
from tools.models import VOUCHED, Tool, ToolVersion

_KEPT = 20_000
_validators: dict[tuple[str, str], Validator | None] = {}
_authentic: dict[tuple[str, ...], bool] = {}
FIRST = "1.0.0"


def input_validator(version_digest: str, definition: ToolDefinition) -> Validator:
    validator = _compiled(version_digest, "input_schema", definition)
    assert validator is not None
    return validator


def output_validator(version_digest: str, definition: ToolDefinition) -> Validator | None:
    """None where the definition says nothing about its output."""
    if not definition.raw["output_schema"]:
        return None
    return _compiled(version_digest, "output_schema", definition)


@lru_cache(maxsize=1)
def installation_key() -> signing.PrivateSigningKey:
    """It signs the organizations' keys, and signed versions before these existed."""
    return signing.PrivateSigningKey.from_file(Path(settings.KEYS_DIR) / "signing.pem")


def statement_of(
    *, organization: str, tool: UUID, name: str, number: int, label: str, version_digest: str,
    origin: str, early: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The statement that a version's signature covers, with its origin, so that an edited row does
    not verify.

    It includes the tool's id, so that versions of a deleted tool do not verify for a new tool of
    that name. `early`: statements under the installation's key omit the id, and have the origin
    only where no person answers for the code.
    """
    said = signing.version_statement(
        organization=organization, name=name, number=number, label=label, digest=version_digest
    )
    if early:
        return said if origin in VOUCHED else said | {"origin": origin}
    return said | {"origin": origin, "tool": str(tool)}


def authentic(
    *, organization: str, tool: UUID, name: str, number: int, label: str,
    definition: ToolDefinition, version_digest: str, origin: str, signature: str, key_id: str,
    keys: Mapping[str, bytes],
) -> bool:  # fmt: skip
    """Whether a version is what was signed when it was written, under one of the public `keys`.

    The digest is taken once of each definition that was read, never taken from its row.
    """
    public = keys.get(key_id)
    if public is None or definition.digest != version_digest:
        return False
    key = (
        public.hex(), organization, str(tool), name, str(number), label, version_digest, origin,
        signature,
    )  # fmt: skip
    known = _authentic.get(key)
    if known is None:
        _bound(_authentic)
        statement = statement_of(
            organization=organization,
            tool=tool,
            name=name,
            number=number,
            label=label,
            version_digest=version_digest,
            origin=origin,
            early=key_id == installation_key().key_id,
        )
        known = _authentic[key] = signing.verify_statement(public, statement, signature)
    return known


def _compiled(version_digest: str, which: str, definition: ToolDefinition) -> Validator | None:
    key = (version_digest, which)
    if key not in _validators:
        _bound(_validators)
        _validators[key] = Validator(definition.raw[which])
    return _validators[key]


def _bound(kept: dict) -> None:
    if len(kept) >= _KEPT:
        kept.clear()


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
