"""Bearer tokens: `tcr_`, eight characters that identify the row, 43 of secret, six of checksum.

The checksum lets garbage be refused, and leaked tokens be recognized, without a query. The secret
is random enough that a fast keyed hash is the right one; its key is not in the database.
"""

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass

from django.conf import settings

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TOKEN = re.compile(r"tcr_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A token that is well formed; its row says whether it is valid."""

    public_id: str
    secret: str


def new_token() -> tuple[str, PresentedToken]:
    """A fresh token, to be shown once, and its parts."""
    presented = PresentedToken(_random(8), _random(43))
    body = f"tcr_{presented.public_id}_{presented.secret}"
    return body + _checksum(body), presented


def read_token(text: str) -> PresentedToken | None:
    """The parts of a token, or None for anything that is no token of this product."""
    match = _TOKEN.fullmatch(text)
    if not match or not hmac.compare_digest(_checksum(text[:-6]), match[3]):
        return None
    return PresentedToken(match[1], match[2])


def hash_secret(secret: str) -> str:
    key = hashlib.sha256(b"toolcrib token " + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, secret.encode("ascii"), hashlib.sha256).hexdigest()


def matches_hash(presented: PresentedToken, secret_hash: str) -> bool:
    return hmac.compare_digest(hash_secret(presented.secret), secret_hash)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode("ascii")), ""
    for _ in range(6):
        value, digit = divmod(value, 62)
        digits = _ALPHABET[digit] + digits
    return digits
