"""Redaction of secrets in evidence, by sensitive key names and known token formats.

A redacted value is replaced by a marker with a short keyed hash, so that an investigator who has a
suspected value can test whether it was the one, and other readers learn nothing.
"""

import hashlib
import hmac
import json
import re
from functools import lru_cache
from itertools import islice
from typing import Any

_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase|code)?s?_?\d*$|secret|tokens?$|api_?key|access_?key|private_?key|account_?key"
    r"|encryption_?key|signing_?key|authorization|cookie|credential|bearer|session_?id$|^pin$"
    r"|^otp$|^cvv2?$|^ssn$|connection_?string|^dsn$",
    re.IGNORECASE,
)
_TOKEN_COUNT = re.compile(r"tokens$", re.IGNORECASE)  # of a language model: a number is no secret
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET = re.compile(
    r"\btcr_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"  # our own tokens
    r"|\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs])[_-][A-Za-z0-9_-]{16,}"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}=*"
    r"|(?i:\bbasic\s+)[A-Za-z0-9+/]{12,}={0,2}(?![A-Za-z0-9+/])"
    r"|\bAIza[A-Za-z0-9_-]{35}"  # Google
    r"|\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"  # SendGrid
    r"|\bnpm_[A-Za-z0-9]{30,}|\bhf_[A-Za-z0-9]{30,}|\bpypi-[A-Za-z0-9_-]{16,}"
    r"|\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,}"
    r"|(?<=://)[^\s/:@]{0,100}:[^\s/@]{1,200}(?=@)"  # of an address
    r"|(?i:(?<![a-z])(?:pass(?:word|wd|phrase)\d*|secret|api[_-]?key|token)[\"']?\s*[=:]\s*[\"']?)"
    r"[^\s\"'&,;]{6,200}"
    r"|(?P<card>(?<![\da-fA-F.])\d(?:[ -]?\d){12,18}(?![\da-fA-F.]))"  # not within a hash
)
_CARD_PREFIX = re.compile(r"[3-6]|2[2-7]")  # as cards begin; times of this century do not
_LEAST_CARD, _MOST_CARD = 10**12, 10**19 - 1
MAX_TEXT = 2_000
MAX_ITEMS = 100
_SHORT_KEY = 100
_LONGEST_SECRET = 512  # of those that are known by how they end


@lru_cache(maxsize=4_096)
def _classify_key(key: str) -> tuple[bool, bool]:
    """Whether a member of this name holds a secret, and whether a number in it is none. The same
    few names come back in every definition."""
    snake = _CAMEL_BOUNDARY.sub("_", key).replace("-", "_")
    return bool(_SECRET_KEY.search(snake)), bool(_TOKEN_COUNT.search(snake))


@lru_cache(maxsize=4_096)
def _is_harmless(key: str) -> bool:
    return _SECRET.search(key) is None


def _is_card(digits: str) -> bool:
    return bool(_CARD_PREFIX.match(digits)) and _luhn(digits)


def _luhn(digits: str) -> bool:
    """Whether the check digit of a payment card's number is right."""
    doubled = (sum(divmod(int(digit) * 2, 10)) for digit in digits[-2::-2])
    plain = (int(digit) for digit in digits[-1::-2])
    return (sum(doubled) + sum(plain)) % 10 == 0


class Redactor:
    """`key` belongs to one organization, so the same secret of two cannot be matched."""

    def __init__(self, key: bytes, most_text: int = MAX_TEXT, most_items: int = MAX_ITEMS) -> None:
        self._key = key
        self._most_text = most_text
        self._most_items = most_items

    def with_room(self, most_text: int, most_items: int) -> "Redactor":
        """The same, that cuts elsewhere."""
        return Redactor(self._key, most_text, most_items)

    def clean(self, value: Any, sensitive: frozenset[str] = frozenset()) -> Any:
        """A copy of a JSON value without secrets, long texts and lists cut with a marker.

        A marker carries a keyed hash of the whole, so two values that differ where they were cut
        look different. `sensitive` are names of members that are secret whatever they look like.
        """
        return self._clean(value, sensitive, hashed=False)

    def mark(self, secret: str) -> str:
        """The marker of a secret: the same for the same secret of one organization."""
        return f"[redacted {self._hash(secret)}]"

    def _clean(self, value: Any, sensitive: frozenset[str], *, hashed: bool) -> Any:
        """`hashed` where an outer marker covers this too: each byte is hashed once."""
        if isinstance(value, str):
            return self._clean_text(value, hashed=hashed)
        if type(value) is int:
            return self._clean_number(value)
        if not isinstance(value, dict | list):
            return value
        more = len(value) - self._most_items
        marker = f"{more} more" + ("" if hashed else self._whole_marker(value)) if more > 0 else ""
        within = hashed or bool(marker)
        if isinstance(value, list):
            first = value[: self._most_items]
            shown = [self._clean(item, sensitive, hashed=within) for item in first]
            return shown + ([f"… {marker}"] if marker else [])
        cleaned = {
            self._clean_name(str(key), hashed=within): self._clean_member(
                str(key), item, sensitive, hashed=within
            )
            for key, item in islice(value.items(), self._most_items)
        }
        return cleaned | ({"…": marker} if marker else {})

    def _clean_member(
        self, key: str, value: Any, sensitive: frozenset[str], *, hashed: bool
    ) -> Any:
        named, counts = _classify_key(key)
        counted = counts and isinstance(value, int | float)
        secret = key in sensitive or (named and not counted)
        if secret and value not in (None, "", [], {}):
            return self.mark(value if isinstance(value, str) else _json(value))
        return self._clean(value, sensitive, hashed=hashed)

    def _clean_name(self, key: str, *, hashed: bool) -> str:
        return (
            key
            if len(key) <= _SHORT_KEY and _is_harmless(key)
            else self._clean_text(key, hashed=hashed)
        )

    def _clean_text(self, text: str, *, hashed: bool) -> str:
        """Only its beginning is searched: a detector must not spend its time on megabytes."""
        shown, at = list[str](), 0
        for found in _SECRET.finditer(text[: self._most_text + _LONGEST_SECRET]):
            if found.start() >= self._most_text:
                break
            shown += [text[at : found.start()], self._redact_match(found)]
            at = found.end()
        end = max(at, min(len(text), self._most_text))
        if more := len(text) - end:
            marker = f"… {more} more characters" + ("" if hashed else self._whole_marker(text))
            return "".join((*shown, text[at:end], marker))
        return "".join((*shown, text[at:]))

    def _redact_match(self, found: re.Match[str]) -> str:
        if not found["card"]:
            return self.mark(found.group())
        digits = re.sub(r"\D", "", found.group())
        return self.mark(digits) if _is_card(digits) else found.group()

    def _clean_number(self, number: int) -> Any:
        if not _LEAST_CARD <= number <= _MOST_CARD:
            return number
        digits = str(number)
        return self.mark(digits) if _is_card(digits) else number

    def _whole_marker(self, value: Any) -> str:
        return f" [whole {self._hash(value if isinstance(value, str) else _json(value))}]"

    def _hash(self, text: str) -> str:
        digest = hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256)
        return digest.hexdigest()[:12]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
