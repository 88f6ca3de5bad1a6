"""From what a tool returned to what a reader gets."""

import json
from typing import Any

MAX_OBSERVATION = 20_000


def observation_of(output: Any) -> str:
    """The output as text for a model: a text as it is, anything else as JSON; cut with a marker."""
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    if len(text) <= MAX_OBSERVATION:
        return text
    return f"{text[:MAX_OBSERVATION]}\n… {len(text) - MAX_OBSERVATION} more characters"


def size_of(output: Any) -> int:
    """Bytes of the output as JSON."""
    return len(json.dumps(output, ensure_ascii=False).encode("utf-8"))
