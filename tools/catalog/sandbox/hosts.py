"""Allowed hosts and paths, as profiles and organizations list them and as the egress broker and the
sandbox take them.

An item is the text of a host, or an object with a host and restrictions. The broker's own rules
define valid hosts, ports, methods and paths.
"""

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings

from sandbox.egress.rules.egress_policy import HostRule
from sandbox.egress.rules.host_rules import read_rule
from sandbox.spec import Mount
from tools.catalog.list_fields import ListedFields, described
from tools.definitions.tool import PROFILE_NAME

MOST_RULES = 100
_MOST_PARTS = 32
_KINDS = {"ports": int, "methods": str, "paths": str}
_TLS_ONLY = [443]
_PLAIN_HTTP = 80

Item = str | dict[str, Any]
Header = tuple[str, str]
MOST_PATHS = 32
_WRITABLE = {"ro": False, "rw": True}
_ALWAYS = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot")


def read_hosts(parent: ListedFields, name: str) -> list[Item]:
    """The list in canonical form. Errors name a field such as `name[2].ports`."""
    given = parent.raw.get(name)
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > MOST_RULES:
        parent.wrong(name, f"must be a list of at most {MOST_RULES} hosts")
        return []
    return [_read_item(parent, f"{name}[{at}]", one) for at, one in enumerate(given)]


def credentials_in(items: Iterable[Item]) -> set[str]:
    """Names of the credentials that a list refers to."""
    return {item["credential"] for item in items if isinstance(item, dict) and "credential" in item}


def rules_of(items: Iterable[Item], headers: Mapping[str, Header]) -> tuple[HostRule, ...]:
    """The rules for the egress broker. `headers` has the header of every named credential."""
    return tuple(_rule(item, headers) for item in items)


def _read_item(parent: ListedFields, place: str, given: Any) -> Item:
    raw = {"host": given} if isinstance(given, str) else given
    if not isinstance(raw, dict):
        parent.wrong(place, "must be a host, or an object that names one")
        return ""
    fields = parent.inside(place, raw)
    fields.reject_unknown(("host", *_KINDS, "credential"))
    item: dict[str, Any] = {"host": _host(fields)}
    for part, kind in _KINDS.items():
        if fields.has_value(part):
            item[part] = _narrowing(fields, part, kind)
    if fields.has_value("credential"):
        item["credential"] = fields.text("credential", longest=63)
        _check_credential(fields, item)
    return item if len(item) > 1 else str(item["host"])


def _host(fields: ListedFields) -> str:
    """In the spelling for comparison."""
    text = fields.text("host", longest=300)
    if not text or fields.note("host", described(lambda: read_rule(HostRule(text)))):
        return text
    rule = read_rule(HostRule(text))
    return rule.host.text if rule.host else f"*{rule.suffix}"


def _narrowing(fields: ListedFields, part: str, kind: type) -> list[Any]:
    values = fields.distinct(part, kind, most=_MOST_PARTS)
    rule: dict[str, Any] = {part: tuple(values)}
    if values:
        fields.note(part, described(lambda: read_rule(HostRule("example.com", **rule))))
    return values


def _check_credential(fields: ListedFields, item: dict[str, Any]) -> None:
    """A secret is sent only to named hosts, and never through port 80."""
    if not PROFILE_NAME.fullmatch(item["credential"]):
        fields.wrong("credential", "may hold only letters, digits, '_', '.' and '-'")
    if item["host"] == "*":
        fields.wrong("credential", "cannot go to every host; name the one it is for")
    if _PLAIN_HTTP in item.setdefault("ports", [*_TLS_ONLY]):
        fields.wrong("ports", "a credential is never sent to port 80")


def _rule(item: Item, headers: Mapping[str, Header]) -> HostRule:
    if isinstance(item, str):
        return HostRule(item)
    parts: dict[str, Any] = {name: tuple(item[name]) for name in _KINDS if name in item}
    if "credential" in item:
        parts["headers"] = (headers[item["credential"]],)
    return HostRule(item["host"], **parts)


def read_paths(parent: ListedFields, name: str, organization: str) -> list[dict[str, str]]:
    """The list in canonical form, a directory before its contents."""
    given = parent.raw.get(name)
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > MOST_PATHS:
        parent.wrong(name, f"must be a list of at most {MOST_PATHS} paths")
        return []
    items = [_item(parent, f"{name}[{at}]", one, organization) for at, one in enumerate(given)]
    if len({item["path"] for item in items}) != len(items):
        parent.wrong(name, "names a path twice")
    return sorted(items, key=lambda item: item["path"])


def mounts_of(items: list[dict[str, str]]) -> tuple[Mount, ...]:
    """Each at its own place inside."""
    return tuple(Mount(item["path"], item["path"], _WRITABLE[item["mode"]]) for item in items)


def outside(items: list[dict[str, str]], organization: str) -> list[str]:
    """The paths that are not in the organization's own workspace."""
    own = _workspace(organization)
    return [item["path"] for item in items if not PurePosixPath(item["path"]).is_relative_to(own)]


def _item(parent: ListedFields, place: str, given: Any, organization: str) -> dict[str, str]:
    if not isinstance(given, dict):
        parent.wrong(place, 'must be an object such as {"path": "/srv/data", "mode": "ro"}')
        return {"path": place, "mode": "ro"}
    fields = parent.inside(place, given)
    fields.reject_unknown(("path", "mode"))
    path, mode = fields.text("path", longest=1_000), given.get("mode", "ro")
    if not isinstance(mode, str) or mode not in _WRITABLE:
        fields.wrong("mode", "must be ro or rw")
    if path:
        fields.note("path", _flaw_in(path, organization))
    return {"path": path, "mode": str(mode)}


def _flaw_in(path: str, organization: str) -> str | None:
    if flaw := described(lambda: Mount(path, path)):
        return flaw
    place = PurePosixPath(path)
    if place.is_relative_to(_workspace(organization)):
        return None
    for kept in _reserved_paths():
        if place.is_relative_to(kept) or kept.is_relative_to(place):
            return "holds, or lies in, what no tool may see: the system's or Toolcrib's own files"
    return None


def _workspace(organization: str) -> PurePosixPath:
    return PurePosixPath(settings.WORKSPACES_DIR, organization)


def _reserved_paths() -> tuple[PurePosixPath, ...]:
    return _resolve_reserved(str(settings.BASE_DIR), str(settings.DATA_DIR), *_sockets())


@lru_cache(maxsize=8)
def _resolve_reserved(*places: str) -> tuple[PurePosixPath, ...]:
    return tuple(PurePosixPath(place) for place in (*_ALWAYS, sys.prefix, *places))


def _sockets() -> tuple[str, ...]:
    """Directories of the sockets of sandboxd and the broker, and of stores reached by one."""
    database = str(settings.DATABASES["default"].get("HOST") or "")
    redis = settings.REDIS_URL.removeprefix("unix://").partition("?")[0]
    places = (redis, settings.SANDBOX_SOCKET, settings.EGRESS_SOCKET)
    found = [str(PurePosixPath(place).parent) for place in places if place.startswith("/")]
    return (*found, *([database] if database.startswith("/") else []))
