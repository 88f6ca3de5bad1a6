"""What a tool that asks a model may cost at most: held before it runs, so that budgets hold.

The bounds are the definition's: bytes of the prompt, tokens of the answer. The prices and the
model where none is named are the installation's, as they are now.
"""

from decimal import Decimal
from typing import Any

from django.conf import settings

from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.llm import prices

MAX_TOKENS = 1_024
MAX_PROMPT_BYTES = 32_768
_MODEL_TYPES = frozenset({ToolType.PROMPT, ToolType.TEXT_COMPLETION})


def model_of(implementation: dict[str, Any]) -> str:
    return str(implementation["model"] or settings.LLM_MODEL)


def max_tokens(implementation: dict[str, Any]) -> int:
    return int(implementation["max_tokens"] or MAX_TOKENS)


def prompt_bytes(implementation: dict[str, Any]) -> int:
    return int(implementation["max_prompt_bytes"] or MAX_PROMPT_BYTES)


def most(definition: ToolDefinition) -> Decimal:
    """What the definition declares, or the worst case of its model's price where that is more."""
    if definition.type not in _MODEL_TYPES:
        return definition.cost
    implementation = definition.raw["implementation"]
    price = settings.LLM_PRICES.get(model_of(implementation))
    if price is None:
        return definition.cost
    dearest = prices.worst(
        price, prompt_bytes=prompt_bytes(implementation), max_tokens=max_tokens(implementation)
    )
    return max(definition.cost, dearest)
