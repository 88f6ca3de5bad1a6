"""Form rows for headers and environment variables. Submitted values are never shown again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from tools.catalog.mcp.mcp_values import MOST_VALUES, SEALED
from tools.definitions.servers import MASK

LITERAL = "value"
EMPTY_ROWS = 3  # empty rows for new ones
_REFERENCE_KINDS = {"env": "environment variable", "file": "file"}


@dataclass(frozen=True)
class SecretRow:
    """One header or variable; `kept` marks one that is set already."""

    key: str
    name: str
    kind: str
    kept: bool
    options: list[tuple[str, str]]

    @property
    def label(self) -> str:
        return self.name or "a new one"


@dataclass(frozen=True)
class SecretInputs:
    field: str
    title: str
    rows: list[SecretRow]


def secret_inputs(field: str, title: str, values: Mapping[str, Any]) -> SecretInputs:
    """The rows of a form: those that are set, and some empty ones. They contain no secrets."""
    kept = [
        SecretRow(
            f"{field}-{at}", name, _secret_kind(value), True, _kind_options(_secret_kind(value))
        )
        for at, (name, value) in enumerate(sorted(values.items()))
    ]
    begin = len(kept)
    spare = [
        SecretRow(f"{field}-{at}", "", LITERAL, False, _kind_options(LITERAL))
        for at in range(begin, min(begin + EMPTY_ROWS, MOST_VALUES))
    ]
    return SecretInputs(field, title, kept + spare)


def parse_secrets(field: str, data: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The submitted values. A kept row without a new value stays; one without a name is ignored."""
    said: dict[str, Any] = {}
    for at in range(MOST_VALUES):
        key = f"{field}-{at}"
        name, kind = data.get(f"{key}-name", "").strip(), data.get(f"{key}-kind", LITERAL)
        value = data.get(f"{key}-value", "")
        if not name or data.get(f"{key}-remove"):
            continue
        if kind != LITERAL:
            reference, _, target = kind.partition(":")
            said[name] = {reference: target}
        else:
            stays = not value and before.get(name) == SEALED
            said[name] = MASK if stays else value
    return said


def _secret_kind(value: Any) -> str:
    if value == SEALED or not isinstance(value, dict):
        return LITERAL
    kind, target = next(iter(value.items()), ("", ""))
    return f"{kind}:{target}"


def _kind_options(kind: str) -> list[tuple[str, str]]:
    """The kinds of a value: literal, or a reference that the operator allows."""
    known = list(dict.fromkeys([*settings.MCP_REFERENCES_ALLOWED, kind]))
    references = [(one, _reference_text(one)) for one in known if one != LITERAL]
    return [(LITERAL, "a value, kept encrypted"), *references]


def _reference_text(reference: str) -> str:
    kind, _, target = reference.partition(":")
    gone = "" if reference in settings.MCP_REFERENCES_ALLOWED else " (not allowed any more)"
    return f"{_REFERENCE_KINDS.get(kind, kind)} {target}{gone}"
