"""Allowlists of message recipients: exact addresses, whole domains, or names."""

import re
from collections.abc import Iterable

LONGEST_ADDRESS = 254
# The subset that all mail servers parse alike: no quotes, comments, routes or line ends.
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_ADDRESS = re.compile(rf"{_LOCAL}@{_DOMAIN}")
_WHOLE_DOMAIN = re.compile(rf"@{_DOMAIN}")
_NAME = re.compile(r"[\w.@+-]{1,150}")


def flaw_in_address(text: str) -> str | None:
    fits = len(text) <= LONGEST_ADDRESS and _ADDRESS.fullmatch(text)
    return None if fits else "must be a plain e-mail address"


def flaw_in_mail_entry(text: str) -> str | None:
    """The error of an entry in the allowlist."""
    domain = len(text) <= LONGEST_ADDRESS and _WHOLE_DOMAIN.fullmatch(text)
    if domain or flaw_in_address(text) is None:
        return None
    return "must be an e-mail address, or a domain such as @example.com"


def flaw_in_person_entry(text: str) -> str | None:
    return None if _NAME.fullmatch(text) else "must be the name of a person"


def uncovered_recipients(recipients: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """The recipients that no entry covers. A domain covers its own addresses, none of a
    subdomain."""
    entries = {entry.casefold() for entry in allowed}
    return [one for one in recipients if not _is_covered(one.casefold(), entries)]


def _is_covered(recipient: str, entries: set[str]) -> bool:
    _, at, domain = recipient.rpartition("@")
    return recipient in entries or bool(at and f"@{domain}" in entries)
