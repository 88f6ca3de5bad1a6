"""Typed readers of environment variables, with a safe default or an error at startup.

Every variable may also be given as `NAME_FILE`, the path of a file that holds the value, so that
secrets need not be in a process environment.
"""

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sandbox.egress.rules.addresses import read_network

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
_files: dict[str, Path] = {}


class BadSetting(Exception):
    """A variable has an invalid value; the message says which and what is valid."""


def env_text(name: str, default: str = "") -> str:
    path = os.environ.get(f"{name}_FILE")
    if path:
        return read_setting_file(f"{name}_FILE", path).strip()
    return os.environ.get(name, default)


def read_setting_file(variable: str, path: str) -> str:
    """Of the file that the variable names. Raises OSError."""
    _files[variable] = Path(path)
    return Path(path).read_text(encoding="utf-8")


def setting_files() -> dict[str, Path]:
    """Variable → the file it names, of those whose value was read from one."""
    return dict(_files)


def env_int(name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
    raw = env_text(name)
    if not raw:
        return default
    if not re.fullmatch(r"-?\d{1,12}", raw) or not least <= int(raw) <= most:
        raise BadSetting(f"{name} must be a whole number from {least} to {most}.")
    return int(raw)


def env_bool(name: str, default: bool) -> bool:
    raw = env_text(name).lower()
    if not raw:
        return default
    if raw not in TRUE | FALSE:
        raise BadSetting(f"{name} must be true or false.")
    return raw in TRUE


def env_list(name: str, default: str = "") -> list[str]:
    return [item.strip() for item in env_text(name, default).split(",") if item.strip()]


def env_choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One word of several."""
    value = env_text(name).strip().lower() or default
    if value not in choices:
        raise BadSetting(f"{name} must be one of {', '.join(choices)}.")
    return value


def env_days(name: str, default: Mapping[str, int]) -> dict[str, int]:
    """Days by kind, such as executions=90,sessions=30; 0 is for ever. What is not named stays."""
    days = dict(default)
    for item in env_list(name):
        kind, mark, number = (part.strip() for part in item.partition("="))
        if kind not in default or not mark or not re.fullmatch(r"\d{1,5}", number):
            kinds = ", ".join(sorted(default))
            raise BadSetting(f"{name}: {item[:60]!r} is not KIND=DAYS with a kind of {kinds}.")
        days[kind] = int(number)
    return days


def env_networks(name: str) -> list[str]:
    """Networks such as 10.1.0.0/16 or ::1/128, a comma between them."""
    try:
        return [str(read_network(text)) for text in env_list(name)]
    except ValueError as error:
        raise BadSetting(f"{name}: {error}") from None


def env_keys(name: str, length: int = 32) -> list[bytes]:
    """Raw keys in base64, commas or white space between them."""
    keys = []
    for text in env_text(name).replace(",", " ").split():
        try:
            key = base64.b64decode(text, validate=True)
        except ValueError:
            key = b""
        if len(key) != length:
            raise BadSetting(f"{name}: {text[:60]!r} is not {length} bytes in base64.")
        keys.append(key)
    return keys


def env_prices(name: str) -> dict[str, tuple[Decimal, Decimal]]:
    """Prices per million tokens by model: {"model": {"input": "0.15", "output": "0.6"}}."""
    raw = env_text(name)
    if not raw:
        return {}
    flaw = f'{name} must be JSON such as {{"model": {{"input": "0.15", "output": "0.6"}}}}.'
    try:
        prices = json.loads(raw)
        return {str(model): _price(price) for model, price in prices.items()}
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        raise BadSetting(flaw) from None


def _price(price: dict[str, object]) -> tuple[Decimal, Decimal]:
    found = Decimal(str(price["input"])), Decimal(str(price["output"]))
    if set(price) != {"input", "output"} or not all(
        one.is_finite() and 0 <= one <= 1_000_000 for one in found
    ):
        raise ValueError
    return found


def env_url(name: str, default: str = "") -> str:
    """An address of http or https with a host, or nothing."""
    value = env_text(name, default)
    parts = urlsplit(value)
    if value and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise BadSetting(f"{name} must begin with http:// or https:// and name a host.")
    return value


def env_live(name: str) -> str:
    """An address of http or https, a path of our own, `off`, or nothing."""
    value = env_text(name)
    ours = value == "off" or (value.startswith("/") and not value.startswith("//"))
    if re.search(r"[\s;,'\"\\]", value):  # it is sent in a header
        raise BadSetting(f"{name} holds a character that an address does not.")
    return value if ours else env_url(name)


def database_options(url: str) -> dict[str, object]:
    """Django's DATABASES entry for a `postgresql://` URL; `?host=/dir` names a UNIX socket."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise BadSetting("DATABASE_URL must begin with postgresql:// (PostgreSQL 15 or newer).")
    try:
        port = parts.port
    except ValueError:
        raise BadSetting("DATABASE_URL names a port that is no number.") from None
    query = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "config.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "toolcrib",
        "USER": unquote(parts.username or query.pop("user", "")),
        "PASSWORD": unquote(parts.password or query.pop("password", "")),
        "HOST": parts.hostname or query.pop("host", ""),
        "PORT": str(port or query.pop("port", "")),
        "OPTIONS": query,
    }


def secret_from_file(path: Path) -> str:
    """The secret in `path`, made on first use; readable by its owner only."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(secrets.token_urlsafe(48) + "\n")
    try:
        os.link(draft, path)  # the first of several processes wins, and all read the same secret
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def mail_options(url: str) -> dict[str, Any]:
    """What Django's SMTP backend takes; empty without a URL.

    `smtps` is TLS from the first byte; `smtp` begins it after the greeting, and does without on
    this machine alone.
    """
    if not url:
        return {}
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise BadSetting("EMAIL_URL names a port that is no number.") from None
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise BadSetting("EMAIL_URL must be like smtps://user:password@mail.example.com:465.")
    begins_tls = parts.scheme == "smtp" and parts.hostname not in _LOOPBACK
    return {
        "host": parts.hostname,
        "port": port or (465 if parts.scheme == "smtps" else 587 if begins_tls else 25),
        "username": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "use_ssl": parts.scheme == "smtps",
        "use_tls": begins_tls,
    }


ROLES = ("administrator", "tool-manager", "approver", "auditor", "viewer")


def env_issuer(name: str) -> str:
    """The provider's issuer, exactly as it writes it itself. In the clear on this machine alone."""
    value = env_url(name)
    parts = urlsplit(value)
    if value and parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise BadSetting(f"{name} must begin with https://.")
    return value


def env_roles(name: str) -> dict[str, list[str]]:
    """Roles by the name of a provider's group: `crib-admins=administrator,staff=viewer`. A group
    that is named twice gives both."""
    found: dict[str, list[str]] = {}
    for pair in env_list(name):
        group, _, role = pair.rpartition("=")
        if not group.strip() or role.strip() not in ROLES:
            raise BadSetting(
                f"{name}: {pair[:60]!r} is not GROUP=ROLE, with a role of {', '.join(ROLES)}."
            )
        found.setdefault(group.strip(), []).append(role.strip())
    return found
