"""A signed license file: its terms, whether a trusted key signed it, and whether it is valid, in
grace or expired.

Pure and offline. What is signed is the canonical form (RFC 8785) of the object `license` after a
prefix of its own, so that no signature made for another purpose passes for a license.
"""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tools.definitions.signing import public_key_id
from tools.definitions.texts.names import SLUG
from tools.definitions.values import strict_json
from tools.errors import Malformed

PREFIX = b"toolcrib-license-v1\n"
MOST_BYTES = 64 * 1024
MOST_GRACE_DAYS = 366
EXPIRING = timedelta(days=30)
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_KEYS = frozenset({"license", "key_id", "signature"})
_FIELDS = frozenset({"id", "organization", "tier", "issued_at", "expires_at", "grace_days"})


class LicenseState(StrEnum):
    NONE = "none"
    VALID = "valid"
    EXPIRING = "expiring"
    GRACE = "grace"
    EXPIRED = "expired"


class BadSignature(Malformed):
    """No trusted key has signed the file's terms."""

    code = "license_signature_invalid"


@dataclass(frozen=True)
class License:
    """The terms of a license. `expires_at` is None for one that never ends."""

    id: str
    organization: str
    tier: str
    issued_at: datetime
    expires_at: datetime | None
    grace_days: int


def license_state(expires_at: datetime | None, grace_days: int, now: datetime) -> LicenseState:
    """The state of an installed license, which is valid up to and including its last second."""
    if expires_at is None or now + EXPIRING < expires_at:
        return LicenseState.VALID
    if now <= expires_at:
        return LicenseState.EXPIRING
    return LicenseState.GRACE if now <= grace_end(expires_at, grace_days) else LicenseState.EXPIRED


def grace_end(expires_at: datetime, grace_days: int) -> datetime:
    """The end of the days of grace."""
    try:
        return expires_at + timedelta(days=grace_days)
    except OverflowError:
        return datetime.max.replace(tzinfo=expires_at.tzinfo)


def signed_message(license_object: dict[str, Any]) -> bytes:
    """The bytes that are signed. Raises `Malformed` for what has no canonical form."""
    try:
        return PREFIX + rfc8785.dumps(license_object)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise _malformed(f"it has no canonical form ({error})") from None


def read_license(raw: bytes, trusted_keys: Iterable[bytes]) -> tuple[License, dict[str, Any]]:
    """The terms of a license file, and the file as an object.

    Raises `Malformed`, and `BadSignature` unless one of the trusted raw public keys signed it. The
    terms are read only after the signature is verified.
    """
    document = _parse_document(raw)
    _verify_signature(document, {public_key_id(key): key for key in trusted_keys})
    return _parse_license(document["license"]), document


def _parse_document(raw: bytes) -> dict[str, Any]:
    if len(raw) > MOST_BYTES:
        raise _malformed(f"it is longer than {MOST_BYTES} bytes")
    try:
        document = strict_json.parse(raw)
    except strict_json.BadJson as error:
        raise _malformed(f"it is {error}") from None
    if not isinstance(document, dict) or set(document) != _KEYS:
        raise _malformed("it must be an object of license, key_id and signature, nothing else")
    if not isinstance(document["license"], dict):
        raise _malformed("license must be an object")
    if not isinstance(document["key_id"], str) or not isinstance(document["signature"], str):
        raise _malformed("key_id and signature must be texts")
    return document


def _verify_signature(document: dict[str, Any], keys: dict[str, bytes]) -> None:
    if not keys:
        raise Malformed(
            "This installation trusts no key, so no licence can be installed. Put the public key "
            "of whoever issues licences into LICENSE_KEYS and start Toolcrib anew.",
            code="license_keys_missing",
        )
    key = keys.get(document["key_id"])
    if key is None:
        known = ", ".join(sorted(keys))
        raise BadSignature(
            f"The licence was signed with the key {document['key_id'][:40]!r}, which LICENSE_KEYS "
            f"does not trust, only: {known}.",
            code="license_key_unknown",
        )
    signature, message = (
        _decode_signature(document["signature"]),
        signed_message(document["license"]),
    )
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        raise BadSignature(
            "The signature does not fit what the licence says. Ask for the file again; it may "
            "not be edited."
        ) from None


def _decode_signature(text: str) -> bytes:
    """Only the canonical base64 of 64 bytes; other texts can decode to the same bytes."""
    try:
        signature = base64.b64decode(text, validate=True)
    except ValueError:
        raise BadSignature("The signature is not base64.") from None
    if len(signature) != 64 or base64.b64encode(signature).decode() != text:
        raise BadSignature("The signature is not 64 bytes in base64.")
    return signature


def _parse_license(said: dict[str, Any]) -> License:
    if set(said) != _FIELDS:
        raise _malformed(f"license must have exactly the fields {', '.join(sorted(_FIELDS))}")
    read = License(
        id=_parse_text(said, "id", _IDENTIFIER),
        organization=_parse_text(said, "organization", SLUG),
        tier=_parse_text(said, "tier", re.compile(r".{1,60}")),
        issued_at=_parse_moment(said, "issued_at"),
        expires_at=None if said["expires_at"] is None else _parse_moment(said, "expires_at"),
        grace_days=_parse_grace_days(said["grace_days"]),
    )
    if read.expires_at is not None and read.expires_at <= read.issued_at:
        raise _malformed("license.expires_at must be after license.issued_at")
    return read


def _parse_text(said: dict[str, Any], field: str, pattern: re.Pattern[str]) -> str:
    value = said[field]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _malformed(f"license.{field} cannot be read")
    return value


def _parse_moment(said: dict[str, Any], field: str) -> datetime:
    value = said[field]
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise _malformed(f"license.{field} must be a moment such as 2027-01-31T00:00:00Z")


def _parse_grace_days(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_GRACE_DAYS:
        raise _malformed(f"license.grace_days must be a whole number from 0 to {MOST_GRACE_DAYS}")
    return value


def _malformed(flaw: str) -> Malformed:
    return Malformed(f"The licence file cannot be used: {flaw}.", code="license_malformed")
