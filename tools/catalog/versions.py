"""What is made once per tool version and kept: compiled validators, checked signatures."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from tools.definitions import signing
from tools.definitions.schemas import Validator
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
def signing_key() -> signing.SigningKey:
    return signing.SigningKey.from_file(Path(settings.KEYS_DIR) / "signing.pem")


def statement_of(
    *, organization: str, name: str, number: int, label: str, version_digest: str, origin: str
) -> dict[str, Any]:
    """What a version's signature vouches for.

    That nobody answers for it is part of what is signed, so that no edited row can unsay it.
    """
    said = signing.statement(
        organization=organization, name=name, number=number, label=label, digest=version_digest
    )
    return said if origin in VOUCHED else said | {"origin": origin}


def authentic(
    *, organization: str, name: str, number: int, label: str, definition: ToolDefinition,
    version_digest: str, origin: str, signature: str, key_id: str,
    keys: Mapping[str, str], resigned: Sequence[tuple[str, str]] = (),
) -> bool:  # fmt: skip
    """Whether a version is what was signed: when it was written, or again later (`resigned`).

    `keys` are the organization's that are trusted, public keys by their ids. The digest is taken
    once of each definition that was read, never taken from its row.
    """
    if definition.digest != version_digest:
        return False
    statement = statement_of(
        organization=organization,
        name=name,
        number=number,
        label=label,
        version_digest=version_digest,
        origin=origin,
    )
    return any(_vouched(statement, *one, keys) for one in ((key_id, signature), *resigned))


def in_use(
    *, organization: str, name: str, number: int, key_id: str, signature: str,
    keys: Mapping[str, str],
) -> bool:  # fmt: skip
    """Whether this number was signed as the one in use."""
    statement = signing.head_statement(organization=organization, name=name, number=number)
    return _vouched(statement, key_id, signature, keys)


def _vouched(
    statement: dict[str, Any], key_id: str, signature: str, keys: Mapping[str, str]
) -> bool:
    installation = signing_key()
    own = key_id == installation.key_id
    public = installation.public_key if own else keys.get(key_id)
    if public is None:
        return False
    key = (*map(str, (part for pair in statement.items() for part in pair)), signature, public)
    known = _authentic.get(key)
    if known is None:
        _bound(_authentic)
        known = _authentic[key] = signing.signed_by(public, statement, signature)
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
