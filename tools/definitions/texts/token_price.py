"""Estimates how many tokens of a model's context a tool's definition takes.

No tokenizer is asked: each vendor has its own, and they agree within a fifth or so on what
definitions are made of. Counted are pieces: runs of letters by sixes, digits by threes, every mark.
"""

import json
import re
from typing import Any

_PIECES = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")


def tokens_of(text: str) -> int:
    return sum(1 for _ in _PIECES.finditer(text))


def price_of(definition: dict[str, Any]) -> int:
    """Tokens of a canonical definition as tool lists of models have it."""
    shown = {
        "name": definition["name"],
        "description": definition["description"],
        "input_schema": definition["input_schema"],
    }
    return tokens_of(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
