"""Prints a new token once, with a command line that tests it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from config.local.address import Address
from tools.management.commands import up
from tools.models import Token
from tools.shapes import moment


def token_document(token: Token, text: str) -> dict[str, Any]:
    return {"id": str(token.pk), "token": text, "expires_at": moment(token.expires_at)}


def token_lines(token: Token, text: str) -> list[tuple[str, str]]:
    return [
        ("Token", f"{text}   (shown this once)"),
        ("Good until", f"{token.expires_at:%Y-%m-%d}"),
    ]


def how_to_use(text: str, query: str = "") -> str:
    return f"curl -H 'Authorization: Bearer {text}' '{running_at()}/api/v1/tools{query}'"


def running_at() -> Address:
    """The address where `manage.py up` of this data directory listens, or would listen."""
    words: list[str] = []
    # The lock names the process, and the kernel how it was started; either may be gone.
    with suppress(OSError):
        pid = (settings.DATA_DIR / "up.lock").read_text("ascii").strip()
        words = Path("/proc", pid, "cmdline").read_text("utf-8", "replace").split("\0")
    return _address(words[words.index("up") + 1 : -1] if "up" in words else [])


def _address(words: list[str]) -> Address:
    parser = up.Command().create_parser("manage.py", "up")
    try:
        wanted = parser.parse_args(words)
    except CommandError:
        wanted = parser.parse_args([])
    return Address(wanted.host, wanted.port)
