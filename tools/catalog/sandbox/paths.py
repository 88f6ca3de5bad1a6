"""Paths of this machine that a profile may share, and those that are never shared."""

import sys
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings

from sandbox.spec import Mount
from tools.catalog.listed import ListedFields, described

MOST_PATHS = 32
_WRITABLE = {"ro": False, "rw": True}
_ALWAYS = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot")


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
    fields.known(("path", "mode"))
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
