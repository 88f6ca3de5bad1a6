"""Licenses as their seller writes them."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tools.definitions.licenses import signed_message
from tools.definitions.signing import public_key_id

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()


def moment(days: float = 0) -> str:
    """Days from now, as a license writes it."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


def license_fields(organization: str, tier: str = "Teams", **fields: Any) -> dict[str, Any]:
    return {
        "id": "L-1",
        "organization": organization,
        "tier": tier,
        "issued_at": moment(-1),
        "expires_at": moment(365),
        "grace_days": 14,
        **fields,
    }


def sign_license(license: dict[str, Any], key: Ed25519PrivateKey = KEY) -> dict[str, Any]:
    return {
        "license": license,
        "key_id": public_key_id(key.public_key().public_bytes_raw()),
        "signature": base64.b64encode(key.sign(signed_message(license))).decode(),
    }


def license_file(organization: str, tier: str = "Teams", **fields: Any) -> bytes:
    return rfc8785.dumps(sign_license(license_fields(organization, tier, **fields)))


def indented(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()
