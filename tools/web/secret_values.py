"""`SecretValuesField`: the headers or environment variables that calls to a server carry."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings

from tools.definitions.servers import MASK
from tools.web.form_fields import RowsField, RowsWidget, digest_of

_LITERAL = "value"  # the kind of a value that is no reference
_REFERENCE_KINDS = {"env": "environment variable", "file": "file"}
_DIGEST = re.compile(r"(?<=: )[0-9a-f]{64}$")


class StoredSecret(str):
    """A stored secret for which nothing new was typed."""

    __slots__ = ()


class SecretValuesField(RowsField):
    """Headers or environment variables: names, with secrets or references to values of this
    installation.

    The initial value has the stored secrets, of which the page carries keyed digests alone. A row
    without a new secret keeps the stored one. `api_values` is the value in the API's format.
    """

    stored: Mapping[str, Any] = {}
    again: frozenset[str] = frozenset()  # the rows whose secret must be typed again

    def __init__(self, *, most: int, placeholder: str, **options: Any) -> None:
        columns = ("name", "kind", "value", "remove")
        widget = RowsWidget("_parts/secret_values.html", columns, ("name", "value"), most)
        widget.attrs["placeholder"] = placeholder
        options.setdefault("help_text", "What is typed is kept encrypted and never shown again.")
        super().__init__(widget, **options)

    def key(self, at: int, row: Mapping[str, str]) -> str:
        return row["name"] or f"row {at}"

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return [
            {"name": name, "kind": _secret_kind(one), "value": "", "remove": ""}
            for name, one in sorted(value.items())
        ]

    def show(self, at: int, row: dict[str, str]) -> dict[str, Any]:
        kind = row["kind"] or _LITERAL
        known = dict.fromkeys((*settings.MCP_REFERENCES_ALLOWED, kind))
        references = [(one, _reference_text(one)) for one in known if one != _LITERAL]
        return super().show(at, row) | {
            "again": self.key(at, row) in self.again,
            "kept": row["name"] in self.stored,
            "sealed": isinstance(self.stored.get(row["name"]), str) and kind == _LITERAL,
            "kind": kind,
            "kinds": [(_LITERAL, "a value, kept encrypted"), *references],
        }

    def read(self, rows: list[dict[str, str]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for at, row in enumerate(rows):
            name, value = row["name"], row["value"]
            if row["remove"]:
                continue
            if not name:
                self.mark(self.key(at, row), "Give it a name.")
            elif row["kind"] not in ("", _LITERAL):
                kind, _, target = row["kind"].partition(":")
                values[name] = {kind: target}
            elif value or not isinstance(self.stored.get(name), str):
                values[name] = value
            else:
                values[name] = StoredSecret(self.stored[name])
        return values

    def ask_again(self, rows: Sequence[Mapping[str, str]]) -> bool:
        """Mark the rows whose secret was typed, as it is not shown again."""
        self.again = frozenset(
            self.key(at, row) for at, row in enumerate(rows) if row["value"] and not row["remove"]
        )
        return bool(self.again)

    def text(self, value: Any) -> str:
        return "\n".join(
            f"{name}: {_reference_text(_secret_kind(one))}"
            if isinstance(one, Mapping)
            else f"{name}: {digest_of(one)}"
            for name, one in sorted((value or {}).items())
        )

    def conflict_texts(self, before: str, theirs: str, yours: str) -> list[str]:
        known = before.splitlines()
        return [
            _hide_digests(before, known, ""),
            _hide_digests(theirs, known, "another one"),
            _hide_digests(yours, [*known, *theirs.splitlines()], "typed"),
        ]


def api_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of a `SecretValuesField`: the mask in place of a secret that is kept."""
    return {
        name: MASK if isinstance(value, StoredSecret) else value for name, value in values.items()
    }


def _hide_digests(text: str, known: Sequence[str], word: str) -> str:
    """A secret that is not in the `known` lines is called by the word, a new one "set"."""
    names = {line.partition(":")[0] for line in known}
    return "\n".join(
        _DIGEST.sub(
            "•••"
            if line in known
            else f"••• ({word if line.partition(':')[0] in names else 'set'})",
            line,
        )
        for line in text.splitlines()
    )


def _secret_kind(value: Any) -> str:
    if not isinstance(value, Mapping):
        return _LITERAL
    kind, target = next(iter(value.items()), ("", ""))
    return f"{kind}:{target}"


def _reference_text(reference: str) -> str:
    kind, _, target = reference.partition(":")
    gone = "" if reference in settings.MCP_REFERENCES_ALLOWED else " (not allowed any more)"
    return f"{_REFERENCE_KINDS.get(kind, kind)} {target}{gone}"
