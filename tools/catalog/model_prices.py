"""The maximum cost of a call to a model: reserved before it runs, so that budgets are kept.

The bounds are the definition's, bytes of the prompt and tokens of the answer, or those of the
question itself where a call brings one whole. The prices and the model where none is named are the
installation's, as they are now.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import Any

from django.conf import settings

from tools.definitions.implementations.tool_types import ASK_MODEL
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType

_MILLION = Decimal(1_000_000)
_PLACES = Decimal("0.000001")
# What a chat's frame adds: roles, separators. No tokenizer makes more tokens than there are bytes.
FRAME_TOKENS = 64
Price = tuple[Decimal, Decimal]  # of a million tokens that go in, and that come out
MAX_TOKENS = 1_024
MAX_PROMPT_BYTES = 32_768
MOST_ASKED_TOKENS = 16_384
MOST_ASKED_BYTES = 256 * 1024
_MODEL_TYPES = frozenset({ToolType.PROMPT, ToolType.TEXT_COMPLETION})
_TOOLS_FRAME = 1_024  # what endpoints add to a prompt about tool calls, beside the tools


@dataclass(frozen=True, slots=True)
class _Bounds:
    model: str
    prompt_bytes: int
    max_tokens: int


def cost(price: Price, input_tokens: int, output_tokens: int) -> Decimal:
    """Rounded up."""
    whole = price[0] * input_tokens + price[1] * output_tokens
    return (whole / _MILLION).quantize(_PLACES, ROUND_UP)


def worst(price: Price, *, prompt_bytes: int, max_tokens: int) -> Decimal:
    """The maximum cost of a prompt of so many bytes and an answer of so many tokens."""
    return cost(price, prompt_bytes + FRAME_TOKENS, max_tokens)


def model_of(implementation: dict[str, Any]) -> str:
    return str(implementation["model"] or settings.LLM_MODEL)


def model_asked(parameters: Mapping[str, Any]) -> str:
    """The cost of a call that brings its question."""
    return str(parameters.get("model") or settings.LLM_MODEL)


def max_tokens(implementation: dict[str, Any]) -> int:
    return int(implementation["max_tokens"] or MAX_TOKENS)


def prompt_bytes(implementation: dict[str, Any]) -> int:
    return int(implementation["max_prompt_bytes"] or MAX_PROMPT_BYTES)


def weight(parameters: Mapping[str, Any]) -> int:
    """Bytes of a question with all that frames its messages and its tools."""
    whole = [parameters.get("messages"), parameters.get("tools")]
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "replace"))


def most(definition: ToolDefinition, parameters: Mapping[str, Any] | None = None) -> Decimal:
    """What the definition declares, or the worst case of its model's price where that is more.

    Without parameters, of a call that brings its question: the least that any holds.
    """
    bounds = _bounds(definition, parameters or {})
    price = settings.LLM_PRICES.get(bounds.model) if bounds else None
    if bounds is None or price is None:
        return definition.cost
    dearest = worst(price, prompt_bytes=bounds.prompt_bytes, max_tokens=bounds.max_tokens)
    return max(definition.cost, dearest)


def _bounds(definition: ToolDefinition, parameters: Mapping[str, Any]) -> _Bounds | None:
    if definition.entry_point == ASK_MODEL:
        return _of_question(definition.defaults | dict(parameters))
    if definition.type not in _MODEL_TYPES:
        return None
    implementation = definition.raw["implementation"]
    return _Bounds(
        model_of(implementation), prompt_bytes(implementation), max_tokens(implementation)
    )


def _of_question(parameters: Mapping[str, Any]) -> _Bounds:
    """A question that is too large is refused, and costs nothing."""
    tokens = parameters.get("max_tokens")
    answer = tokens if type(tokens) is int else MOST_ASKED_TOKENS
    question = min(weight(parameters), MOST_ASKED_BYTES)
    frame = _TOOLS_FRAME if parameters.get("tools") else 0
    return _Bounds(model_asked(parameters), question + frame, min(answer, MOST_ASKED_TOKENS))
