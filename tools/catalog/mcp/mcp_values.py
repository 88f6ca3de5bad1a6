"""Headers and environment of MCP servers: write-only values, stored encrypted, and masked in texts.

A value is a text, or a reference to this installation's own environment or files, of those that
its operator allows: `{"env": "NAME"}`, `{"file": "/path"}`.
"""

import base64
import binascii
import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus
from uuid import UUID

from django.conf import settings

from tools.catalog.list_fields import ListedFields
from tools.catalog.mcp.mcp_catalog import Values
from tools.catalog.signatures import sealed_texts
from tools.definitions.servers import MASK

SEALED = {"sealed": True}
MOST_VALUES = 50
LONGEST_VALUE = 8_192
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TEXT = re.compile(r"[!-~](?:[ -~]*[!-~])?")
# Headers that the protocol sets, and those that frame a message.
_OURS = frozenset(
    {
        "host", "content-length", "content-type", "accept", "connection", "transfer-encoding",
        "te", "upgrade", "trailer", "expect", "keep-alive", "proxy-authorization", "last-event-id",
        "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name",
    }
)  # fmt: skip
# Variables that would change which program runs in the sandbox.
_LOADERS = re.compile(r"(?:LD_.*|PYTHON(?:STARTUP|PATH|HOME)|NODE_OPTIONS|PATH|BASH_ENV|ENV)")
CREDENTIAL_MASK = "[credential]"
CUT = "…"
SHORTEST_PART = 6  # of a value; a shorter word occurs in too many innocent texts
_SPARE = 3  # characters of base64 around a text that depend on its neighbors


class UnreadableMcpValue(Exception):
    """A value that cannot be read; the message names it and never shows it."""


def read_values(
    fields: ListedFields, name: str, before: dict[str, Any], kept: dict[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The part of the row in the clear, and the part to be encrypted. The mask keeps a value;
    `before` and `kept` are the row's."""
    raw = fields.raw.get(name)
    if raw is None:
        return dict(before), dict(kept)
    if not isinstance(raw, dict) or len(raw) > MOST_VALUES:
        fields.wrong(name, f"must be an object of at most {MOST_VALUES} names and values")
        return {}, {}
    shown: dict[str, Any] = {}
    secret: dict[str, str] = {}
    for key, value in raw.items():
        if flaw := _flaw_in_name(name, key):
            fields.wrong(f"{name}.{str(key)[:64]}", flaw)
        elif value == MASK and key in before:
            shown[key] = before[key]
            if key in kept:
                secret[key] = kept[key]
        elif isinstance(value, dict):
            shown[key] = _reference(fields, f"{name}.{key}", value)
        elif _is_text(value):
            shown[key], secret[key] = dict(SEALED), value
        else:
            fields.wrong(f"{name}.{key}", "must be 1 to 8192 printable ASCII characters")
    return shown, secret


def shown_values(values: dict[str, Any]) -> dict[str, Any]:
    """The public form: that a value is set, or what it refers to."""
    return {
        name: MASK if value == SEALED else dict(value) for name, value in sorted(values.items())
    }


def sealed_values(secret: dict[str, dict[str, str]], *, organization: UUID, row: UUID) -> bytes:
    text = json.dumps(secret, separators=(",", ":"))
    return sealed_texts.seal(text, organization=organization, row=row, purpose=sealed_texts.MCP)


def opened_secrets(sealed: bytes, *, organization: UUID, row: UUID) -> dict[str, dict[str, str]]:
    """By `headers` and `env`. Raises `UnreadableMcpValue`."""
    if not sealed:
        return {"headers": {}, "env": {}}
    try:
        text = sealed_texts.unseal(
            sealed, organization=organization, row=row, purpose=sealed_texts.MCP
        )
    except sealed_texts.UnreadableSealedText:
        raise UnreadableMcpValue(
            "the values that were kept cannot be read; set them again"
        ) from None
    return dict(json.loads(text))


def opened_values(values: Values, organization: UUID) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and environment in full. Raises `UnreadableMcpValue`."""
    secrets = opened_secrets(values.sealed, organization=organization, row=values.row)
    return (
        _opened(values.headers, secrets.get("headers", {})),
        _opened(values.env, secrets.get("env", {})),
    )


def _opened(shown: dict[str, Any], secret: dict[str, str]) -> dict[str, str]:
    found = {}
    for name, value in shown.items():
        text = secret.get(name, "") if value == SEALED else _referred(name, value)
        if not _is_text(text):
            raise UnreadableMcpValue(f"the value of {name} is not set, or cannot be sent")
        found[name] = text
    return found


def _flaw_in_name(kind: str, name: Any) -> str | None:
    pattern = _HEADER if kind == "headers" else _VARIABLE
    if not isinstance(name, str) or not pattern.fullmatch(name):
        return "is no name: letters, digits, '_' and '-'"
    if kind == "headers" and (name.lower() in _OURS or name.lower().startswith("mcp-param-")):
        return "is a header of the protocol's own"
    if kind == "env" and _LOADERS.fullmatch(name):
        return "would change which program runs"
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_VALUE and bool(_TEXT.fullmatch(value))


def _reference(fields: ListedFields, name: str, value: dict[str, Any]) -> dict[str, str]:
    if len(value) != 1 or next(iter(value)) not in {"env", "file"}:
        fields.wrong(name, 'must be a text, {"env": "NAME"} or {"file": "/path"}')
        return {}
    kind, target = next(iter(value.items()))
    if not isinstance(target, str) or f"{kind}:{target}" not in settings.MCP_REFERENCES_ALLOWED:
        fields.wrong(name, "refers to what the operator does not allow (MCP_REFERENCES_ALLOWED)")
    return {kind: str(target)[:1_000]}


def _referred(name: str, value: dict[str, str]) -> str:
    """Checked again at use: it was allowed when it was written."""
    kind, target = next(iter(value.items()), ("", ""))
    if f"{kind}:{target}" not in settings.MCP_REFERENCES_ALLOWED:
        raise UnreadableMcpValue(f"{name} refers to what the operator does not allow any more")
    if kind == "env":
        return os.environ.get(target, "")
    try:
        with Path(target).open(encoding="ascii") as source:
            return source.read(LONGEST_VALUE + 1).strip()
    except (OSError, UnicodeDecodeError):
        raise UnreadableMcpValue(f"the file that {name} refers to cannot be read") from None


class Mask:
    """Of the values of some credentials."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for part in _parts(value) for form in _forms(part)}
        ordered = sorted(forms, key=len, reverse=True)
        self.longest = len(ordered[0]) if ordered else 0
        pattern = "|".join(map(re.escape, ordered))
        self._pattern = re.compile(pattern, re.IGNORECASE) if pattern else None

    def text(self, text: str) -> str:
        return self._pattern.sub(CREDENTIAL_MASK, text) if self._pattern else text

    def quotation(self, text: str) -> str:
        """Masks a quoted text. The end of one that was cut with an ellipsis may be half a
        credential, and is dropped."""
        cut = self.longest and text.endswith(CUT)
        return self.text(text[: max(0, len(text) - 1 - self.longest)] + CUT if cut else text)

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it masked, keys too; a number that contains a credential
        becomes the mask."""
        if self._pattern is None or value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return {self.text(key): self.value(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if isinstance(value, str):
            return self.text(value)
        return CREDENTIAL_MASK if self._pattern.search(json.dumps(value)) else value


def mask_of_values(values: Iterable[str]) -> Mask:
    """The mask of values of which some may be no secrets: very short ones are ignored."""
    return Mask(value for value in values if len(value) >= SHORTEST_PART)


def _parts(value: str) -> Iterator[str]:
    """The whole value, what follows the scheme's name, and the decoded text of Basic."""
    yield value
    scheme, _, rest = value.partition(" ")
    if len(rest) >= SHORTEST_PART:
        yield rest
    if scheme.lower() == "basic":
        yield from _basic(rest)


def _basic(encoded: str) -> Iterator[str]:
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    password = pair.partition(":")[2]
    yield from (part for part in (pair, password) if len(part) >= SHORTEST_PART)


def _forms(part: str) -> Iterator[str]:
    yield part
    yield from (quote(part, safe=""), quote(part), quote_plus(part))
    yield "".join(f"%{byte:02X}" for byte in part.encode())
    yield from (
        html.escape(part),
        json.dumps(part)[1:-1],
        json.dumps(part)[1:-1].replace("/", r"\/"),
    )
    yield part.encode().hex()
    for offset in range(_SPARE):
        yield from _in_base64(part.encode(), offset)


def _in_base64(part: bytes, offset: int) -> Iterator[str]:
    """The characters of it in the base64 of any text that contains it at this offset."""
    coded = base64.b64encode(b"\0" * offset + part).decode().rstrip("=")
    begin = -(-offset * 4 // 3)
    end = (offset + len(part)) * 4 // 3
    for text in (coded[begin:end], coded[begin:end].translate(str.maketrans("+/", "-_"))):
        if len(text) >= SHORTEST_PART:
            yield text
