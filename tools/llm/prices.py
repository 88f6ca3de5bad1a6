"""Prices of models: per million tokens; amounts have six decimal places."""

from decimal import ROUND_UP, Decimal

_MILLION = Decimal(1_000_000)
_PLACES = Decimal("0.000001")
# What a chat's frame adds: roles, separators. No tokenizer makes more tokens than there are bytes.
FRAME_TOKENS = 64


Price = tuple[Decimal, Decimal]  # of a million tokens that go in, and that come out


def cost(price: Price, input_tokens: int, output_tokens: int) -> Decimal:
    """Rounded up."""
    whole = price[0] * input_tokens + price[1] * output_tokens
    return (whole / _MILLION).quantize(_PLACES, ROUND_UP)


def worst(price: Price, *, prompt_bytes: int, max_tokens: int) -> Decimal:
    """The maximum cost of a prompt of so many bytes and an answer of so many tokens."""
    return cost(price, prompt_bytes + FRAME_TOKENS, max_tokens)
