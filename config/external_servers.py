"""External servers that the operator configures: MCP servers (stdio) that may be started, and
brokers of tool services other than this installation's.

Only the operator names a command or a broker: no input of an organization starts a program here or
makes Toolcrib connect anywhere.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from config.env import BadSetting, env_text, read_setting_file
from sandbox.errors import SpecInvalid
from sandbox.spec import MIB, Limits, Mount, ServerSpec

WORKSPACE = "/workspace"
_SERVER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_WORKSPACES = ("none", "read", "write")
_MOST = 100
_SERVICE_NAME = re.compile(r"(?:[a-z0-9-]{1,63}/)?[^/\s]{1,200}")
_BROKER_URL = re.compile(r"[a-z][a-z0-9+]{0,30}://.{0,2000}")


@dataclass(frozen=True)
class StdioServer:
    """`arguments` are patterns: a tenant's arguments come behind the command's own, each as a whole
    as one of the patterns says. `variables` are the names of those it may set."""

    name: str
    command: tuple[str, ...]
    arguments: tuple[re.Pattern[str], ...] = ()
    variables: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    programs: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    workspace: str = "none"
    directory: str = "/tmp"  # a private one
    network: bool = False
    memory_bytes: int = 512 * MIB
    processes: int = 64
    disk_bytes: int = 64 * MIB

    @property
    def paths(self) -> list[Path]:
        """What sandboxd's user must be able to reach."""
        return [Path(one) for one in (*self.programs, *(mount.source for mount in self.mounts))]

    @property
    def limits(self) -> Limits:
        return Limits(
            memory_bytes=self.memory_bytes,
            processes=self.processes,
            tmp_bytes=self.disk_bytes,
            output_bytes=1024 * MIB,  # no file grows beyond
            shared_bytes=8192 * MIB,  # packages that servers fetch, for all organizations
            shared_files=200_000,
        )

    def flaw_in_arguments(self, arguments: Iterable[str]) -> str | None:
        """Named by number: what it says may be a secret put into the wrong place."""
        for number, word in enumerate(arguments, 1):
            if not any(pattern.fullmatch(word) for pattern in self.arguments):
                return f"argument {number} is not one that the operator allows"
        return None


def env_stdio(name: str) -> dict[str, StdioServer]:
    """JSON, or the path of a file with JSON or YAML. Raises BadSetting."""
    return _env_document(name, read_stdio_servers, describe=str)


def read_stdio_servers(raw: Any) -> dict[str, StdioServer]:
    """Raises ValueError."""
    if not isinstance(raw, dict):
        raise ValueError("it must be an object of names and what is started for each")
    return {name: _read_server(name, one) for name, one in raw.items()}


@dataclass(frozen=True, slots=True)
class CeleryBroker:
    """A URL of kombu's, and its transport's options. Either may hold passwords."""

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def find_broker(
    brokers: Mapping[str, CeleryBroker], organization: str, service: str
) -> CeleryBroker | None:
    """The more exact name counts. None where the service is at our own broker."""
    return brokers.get(f"{organization}/{service}") or brokers.get(service)


def env_brokers(name: str) -> dict[str, CeleryBroker]:
    """By `service` or `organization/service`. JSON, or the path of a file with JSON or YAML."""
    return _env_document(name, read_brokers, describe=_describe_without_values)


def read_brokers(raw: Any) -> dict[str, CeleryBroker]:
    """Raises ValueError, which repeats no address: there are passwords in them."""
    if not isinstance(raw, dict):
        raise ValueError("it must be an object of services and their brokers")
    return {name: _read_broker(name, one) for name, one in raw.items()}


def _describe_without_values(error: Exception) -> str:
    """A parser of JSON or YAML may quote what it read."""
    return str(error) if type(error) is ValueError else "it cannot be read"


def _env_document[Entry](
    name: str, read: Callable[[Any], dict[str, Entry]], *, describe: Callable[[Exception], str]
) -> dict[str, Entry]:
    text = env_text(name).strip()
    if not text:
        return {}
    try:
        if text.startswith("{"):
            return read(json.loads(text))
        return read(yaml.safe_load(read_setting_file(name, text)))
    except OSError as error:
        raise BadSetting(f"{name} names a file that cannot be read: {error.strerror}.") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadSetting(f"{name} is not as it should be: {describe(error)}") from None


def _read_server(name: Any, raw: Any) -> StdioServer:
    try:
        if not isinstance(name, str) or not _SERVER_NAME.fullmatch(name):
            raise ValueError("its name may hold only letters, digits, '_', '.' and '-'")
        if not isinstance(raw, dict):
            raise ValueError("must be an object")
        if unknown := set(raw) - set(_FIELDS):
            raise ValueError(f"unknown fields: {', '.join(sorted(map(str, unknown)))}")
        read = {field: reader(raw[key]) for key, (field, reader) in _FIELDS.items() if key in raw}
        mounts = (*read.pop("read", ()), *read.pop("write", ()))
        made = StdioServer(name=name, mounts=mounts, **read)
        ServerSpec("", made.command, made.programs, made.mounts, directory=made.directory)
    except (ValueError, TypeError, SpecInvalid, re.error) as flaw:
        raise ValueError(f"{str(name)[:128]}: {flaw}") from None
    return made


def _texts(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list) or len(raw) > _MOST or not all(isinstance(x, str) for x in raw):
        raise ValueError(f"lists have at most {_MOST} texts")
    return tuple(raw)


def _command(raw: Any) -> tuple[str, ...]:
    return (raw,) if isinstance(raw, str) else _texts(raw)


def _patterns(raw: Any) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(one) for one in _texts(raw))


def _variables(raw: Any) -> tuple[str, ...]:
    if not all(_VARIABLE.fullmatch(one) for one in _texts(raw)):
        raise ValueError("variables have names of letters, digits and '_'")
    return _texts(raw)


def _environment(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(one, str) for one in raw.values()):
        raise ValueError("environment must be an object of texts")
    _variables([*raw])
    return dict(raw)


def _mounts(writable: bool) -> Callable[[Any], tuple[Mount, ...]]:
    def read(raw: Any) -> tuple[Mount, ...]:
        """`/path`, or `/path:/where/it/is/shown`."""
        pairs = [one.partition(":") for one in _texts(raw)]
        return tuple(Mount(source, target or source, writable) for source, _, target in pairs)

    return read


def _choice(raw: Any) -> str:
    if raw not in _WORKSPACES:
        raise ValueError(f"workspace must be one of {', '.join(_WORKSPACES)}")
    return str(raw)


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError("directory must be a text")
    return raw


def _flag(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("network must be true or false")
    return raw


def _number(most: int, unit: int = 1) -> Callable[[Any], int]:
    def read(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 1 <= raw <= most:
            raise ValueError(f"numbers here are from 1 to {most}")
        return raw * unit

    return read


def _read_broker(name: Any, raw: Any) -> CeleryBroker:
    if not isinstance(name, str) or not _SERVICE_NAME.fullmatch(name):
        raise ValueError("a service is named as service or organization/service")
    entry = {"url": raw} if isinstance(raw, str) else raw
    if not isinstance(entry, dict) or set(entry) - {"url", "options"}:
        raise ValueError(f"{name} must be a URL, or an object of url and options")
    url, options = entry.get("url"), entry.get("options", {})
    if not isinstance(url, str) or not _BROKER_URL.fullmatch(url) or not isinstance(options, dict):
        raise ValueError(f"{name} needs a url such as amqps://…, and options that are an object")
    return CeleryBroker(url, options)


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "command": ("command", _command),
    "arguments": ("arguments", _patterns),
    "variables": ("variables", _variables),
    "environment": ("environment", _environment),
    "programs": ("programs", _texts),
    "read": ("read", _mounts(writable=False)),
    "write": ("write", _mounts(writable=True)),
    "workspace": ("workspace", _choice),
    "directory": ("directory", _text),
    "network": ("network", _flag),
    "memory_mb": ("memory_bytes", _number(1 << 20, MIB)),
    "processes": ("processes", _number(4096)),
    "disk_mb": ("disk_bytes", _number(1 << 20, MIB)),
}
