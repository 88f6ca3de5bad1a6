"""Parses the descriptor of an MCP server, in any of its formats.

TrustGraph's `mcp/<id>` items, `mcpServers` of desktop clients, `servers` of VS Code, and our own.
Headers and environments hold secrets: no message repeats a value of them.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from tools.definitions.fields import DefinitionFields
from tools.definitions.texts import names
from tools.errors import InvalidDefinition

MOST_ENTRIES = 100
MASK = "•••"  # in place of a value that is kept unchanged
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PLACEHOLDER = re.compile(r"\$\{(input|command):")
_PRINTABLE = re.compile(r"[\x20-\x7e]{0,8192}")


class ServerTransport(StrEnum):
    HTTP = "streamable-http"
    SSE = "sse"
    STDIO = "stdio"


_TRANSPORTS = {
    "http": ServerTransport.HTTP, "streamable-http": ServerTransport.HTTP,
    "streamableHttp": ServerTransport.HTTP,
    "streamable_http": ServerTransport.HTTP, "sse": ServerTransport.SSE,
    "stdio": ServerTransport.STDIO,
}  # fmt: skip
_KNOWN = (
    "name", "transport", "type", "url", "serverUrl", "headers", "command", "args", "env",
    "remote-name", "auth-token", "group", "enabled", "disabled",
)  # fmt: skip
# Settings for desktop clients only. None of them gives a tool more rights.
_IGNORED = ("autoApprove", "alwaysAllow", "description", "gallery", "timeout", "version")


@dataclass(frozen=True)
class ServerDescriptor:
    name: str
    transport: ServerTransport
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    remote_name: str = ""  # of the one tool of a TrustGraph item
    group: tuple[str, ...] | None = None
    enabled: bool = True

    def written(self) -> dict[str, Any]:
        """The neutral form."""
        shown: dict[str, Any] = {"name": self.name, "transport": str(self.transport)}
        if self.transport == ServerTransport.STDIO:
            shown |= {"command": self.command, "args": list(self.args), "env": dict(self.env)}
        else:
            shown |= {"url": self.url, "headers": dict(self.headers)}
        if self.remote_name:
            shown["remote-name"] = self.remote_name
        if self.group is not None:
            shown["group"] = list(self.group)
        return shown if self.enabled else shown | {"enabled": False}


def read_server(raw: Any, name: str = "") -> ServerDescriptor:
    """Raises `InvalidDefinition` with an entry per wrong field."""
    if not isinstance(raw, dict):
        raise InvalidDefinition("A server's configuration is a JSON object.", errors=[])
    flaws: list[dict[str, str]] = []
    fields = DefinitionFields({str(key): value for key, value in raw.items()}, flaws)
    fields.reject_unknown((*_KNOWN, *_IGNORED))
    group = fields.texts("group", None, flaw_of=names.flaw_in_group)
    transport = _read_transport(fields)
    descriptor = ServerDescriptor(
        name=_read_name(fields, name),
        transport=transport,
        **(_read_stdio(fields) if transport == ServerTransport.STDIO else _read_http(fields)),
        remote_name=fields.text("remote-name", "", longest=256),
        group=None if group is None else tuple(group),
        enabled=fields.boolean("enabled", True) and not fields.boolean("disabled", False),
    )
    if flaws:
        raise InvalidDefinition("The server was not accepted: see details.errors.", errors=flaws)
    return descriptor


def _read_name(fields: DefinitionFields, given: str) -> str:
    name = fields.text("name", given or None, longest=128)
    if name and not names.TOOL_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-', at most 128")
    return name


def _read_transport(fields: DefinitionFields) -> ServerTransport:
    if fields.has_value("command") and (fields.has_value("url") or fields.has_value("serverUrl")):
        fields.wrong("url", "stands beside command; a server is started or reached, not both")
    said = fields.raw.get("transport", fields.raw.get("type"))
    if said is None:
        return ServerTransport.STDIO if fields.has_value("command") else _guess_transport(fields)
    kind = _TRANSPORTS.get(said) if isinstance(said, str) else None
    if kind is None:
        key = "transport" if "transport" in fields.raw else "type"
        fields.wrong(key, "must be one of " + ", ".join(ServerTransport))
    return kind or ServerTransport.HTTP


def _guess_transport(fields: DefinitionFields) -> ServerTransport:
    url = fields.raw.get("url")
    old = isinstance(url, str) and url_path(url).endswith("/sse")
    return ServerTransport.SSE if old else ServerTransport.HTTP


def url_path(url: str) -> str:
    """The path of a URL; "" for no URL."""
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _read_http(fields: DefinitionFields) -> dict[str, Any]:
    key = "serverUrl" if "serverUrl" in fields.raw else "url"
    url = fields.text(key, longest=2_000)
    if url and not _is_address(url):
        fields.wrong(key, "must be an address such as https://example.org/mcp, without a password")
    headers = _read_texts(fields, "headers", _HEADER)
    token = fields.text("auth-token", "", longest=8_000)
    if token:
        headers |= {"Authorization": f"Bearer {token}"}
    return {"url": url, "headers": headers}


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = parts.username is None and parts.password is None and not parts.fragment
    known = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return port_fits and plain and known and url.isprintable() and " " not in url


def _read_stdio(fields: DefinitionFields) -> dict[str, Any]:
    args = fields.raw.get("args") or []
    if not isinstance(args, list) or len(args) > MOST_ENTRIES or not all(map(_is_word, args)):
        fields.wrong("args", f"must be a list of at most {MOST_ENTRIES} texts")
        args = []
    if any(_PLACEHOLDER.search(word) for word in args):
        fields.wrong("args", "hold a placeholder that nobody fills in here")
    return {
        "command": fields.text("command", longest=1_000),
        "args": tuple(args),
        "env": _read_texts(fields, "env", _VARIABLE),
    }


def _is_word(word: Any) -> bool:
    return isinstance(word, str) and len(word) <= 8_192 and "\0" not in word


def _read_texts(fields: DefinitionFields, name: str, key: re.Pattern[str]) -> dict[str, str]:
    given = fields.object(name, {})
    if len(given) > MOST_ENTRIES:
        fields.wrong(name, f"must have at most {MOST_ENTRIES} entries")
    for one, value in given.items():
        if not key.fullmatch(str(one)):
            fields.wrong(name, "has an entry whose name cannot be used")
        elif value == MASK:
            continue
        elif not isinstance(value, str) or not _PRINTABLE.fullmatch(value):
            fields.wrong(f"{name}.{one}", "must be a text of printable ASCII characters")
        elif _PLACEHOLDER.search(value):
            fields.wrong(f"{name}.{one}", "holds a placeholder that nobody fills in here")
    return dict(given)
