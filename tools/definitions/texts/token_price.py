"""Estimates how many tokens of a model's context a tool's definition takes.

No tokenizer is used: each vendor has its own, and they agree within about a fifth on texts like
definitions. The estimate counts pieces: letters by sixes, digits by threes, every mark.
"""

import json
import re
from typing import Any

_PIECES = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")


def estimate_tokens(text: str) -> int:
    return sum(1 for _ in _PIECES.finditer(text))


def definition_tokens(definition: dict[str, Any]) -> int:
    """Tokens of a canonical definition as tool lists of models have it."""
    shown = {
        "name": definition["name"],
        "description": definition["description"],
        "input_schema": definition["input_schema"],
    }
    return estimate_tokens(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
