"""Secrets never reach evidence: by the name of their key, and by their look.

What is taken out leaves a mark with a short keyed hash, so that an investigator who holds a
suspected value can test whether it was the one, and nobody else learns anything.
"""

import hashlib
import hmac
import re
from typing import Any

_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)?$|secret|token$|api_?key|access_?key|private_?key|authorization"
    r"|cookie|credential|bearer|session_?id$|^pin$|^otp$",
    re.IGNORECASE,
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_VALUE = re.compile(
    r"\btcr_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"  # our own tokens
    r"|\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs])[_-][A-Za-z0-9_-]{16,}"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}=*"
)
MAX_TEXT = 2_000
MAX_ITEMS = 100


class Redactor:
    """`key` belongs to one organization, so the same secret of two cannot be matched."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def clean(self, value: Any) -> Any:
        """A copy of a JSON value without secrets, long texts and lists cut with a marker."""
        if isinstance(value, dict):
            cleaned = {
                self._text(str(key)): self._member(str(key), item)
                for key, item in list(value.items())[:MAX_ITEMS]
            }
            more = len(value) - MAX_ITEMS
            return cleaned | {"…": f"{more} more"} if more > 0 else cleaned
        if isinstance(value, list):
            cut = [f"… {len(value) - MAX_ITEMS} more"] if len(value) > MAX_ITEMS else []
            return [self.clean(item) for item in value[:MAX_ITEMS]] + cut
        return self._text(value) if isinstance(value, str) else value

    def _member(self, key: str, value: Any) -> Any:
        snake = _HUMP.sub("_", key).replace("-", "_")
        if _SECRET_KEY.search(snake) and value not in (None, "", [], {}):
            return self._mark(str(value))
        return self.clean(value)

    def _text(self, text: str) -> str:
        if len(text) > MAX_TEXT:
            # Cut first: a detector must not spend its time on megabytes. What stays is searched.
            text = f"{text[:MAX_TEXT]}… {len(text) - MAX_TEXT} more characters"
        return _SECRET_VALUE.sub(lambda found: self._mark(found.group()), text)

    def _mark(self, secret: str) -> str:
        digest = hmac.new(self._key, secret.encode("utf-8", "replace"), hashlib.sha256)
        return f"[redacted {digest.hexdigest()[:12]}]"
