"""Encrypted state of forms with several steps, which the browser carries from step to step: it may
hold secrets, and what is written must be what the user saw."""

import base64
import binascii
import json
import zlib
from typing import Any
from uuid import uuid5

from tools.catalog.signatures import sealing
from tools.errors import Malformed
from tools.models import User

_LOST = "What you gave before cannot be read any more. Give it again."


def sealed(raw: Any, user: User, form: str) -> str:
    packed = base64.b85encode(zlib.compress(json.dumps(raw).encode(), 6)).decode()
    return base64.b64encode(sealing.seal(packed, **_place(user, form))).decode()


def opened(text: str, user: User, form: str) -> Any:
    """Raises `Malformed` for a text that was not sealed here, for this user and this form."""
    try:
        packed = sealing.unseal(base64.b64decode(text, validate=True), **_place(user, form))
    except (sealing.UnreadableSealedText, binascii.Error, ValueError):
        raise Malformed(_LOST, code="not_kept") from None
    return json.loads(zlib.decompress(base64.b85decode(packed)))


def _place(user: User, form: str) -> dict[str, Any]:
    return {
        "organization": user.organization_id,
        "row": uuid5(user.pk, form),
        "purpose": sealing.IMPORT,
    }
