"""Caches per tool version: compiled validators, and verified signatures."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from tools.definitions import signing
from tools.definitions.schemas.json_schemas import Validator
from tools.definitions.tool import ToolDefinition
from tools.models import VOUCHED

_KEPT = 20_000
_validators: dict[tuple[str, str], Validator | None] = {}
_authentic: dict[tuple[str, ...], bool] = {}


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
