"""The SMTP server for outgoing mail: `smtp://` or `smtps://user:password@host:port`."""

from typing import Any
from urllib.parse import unquote, urlsplit

from config.env import BadSetting

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
