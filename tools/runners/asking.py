"""Asks a model on behalf of a tool: refused questions, errors, and the cost."""

import time
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.conf import settings

from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from tools.catalog import model_prices
from tools.httpclient.upstreams import RequestBounds, RequestStopped, TimeUp, UpstreamPool
from tools.llm import chat, prices
from tools.runners.base import ToolRun, UpstreamResult


@lru_cache(maxsize=1)
def _upstream() -> UpstreamPool:
    """Connections to the models' endpoint; kept, never made in a call."""
    return UpstreamPool()


def objection(name: str) -> UpstreamResult | None:
    """Why the model of this name is refused, for the caller."""
    if not settings.LLM_BASE_URL or not name:
        return unasked(
            "MODEL_NOT_CONFIGURED",
            "This installation has no model. An administrator sets LLM_BASE_URL and LLM_MODEL.",
        )
    if settings.LLM_PRICES and name not in settings.LLM_PRICES:
        return unasked(
            "MODEL_NOT_PRICED",
            f"This installation has no price for the model {name[:60]}, so no budget could hold "
            "for it. An administrator adds it to LLM_PRICES.",
        )
    return None


def ask(
    job: ToolRun,
    name: str,
    question: chat.ChatRequest,
    tell: Callable[[str], None],
    output: Callable[[chat.ModelAnswer], Any],
) -> UpstreamResult:
    """Text is passed to `tell` as it arrives; `output` converts the whole answer to the tool's
    output."""
    model = chat.Model(settings.LLM_BASE_URL, name, settings.LLM_API_KEY)
    bounds = RequestBounds(job.stop, time.monotonic() + job.timeout_s, job.until)
    try:
        said = chat.ask(_upstream(), model, question, bounds, tell)
    except chat.ModelFailure as failure:
        cost = None if failure.began else Decimal(0)
        return _failed(failure.code, failure.message, cost=cost)
    except RequestStopped:
        return UpstreamResult(
            RunOutcome.CANCELLED,
            error_code=ErrorCode.CANCELLED,
            error_message="The call was stopped.",
        )
    except TimeUp:
        message = f"The model did not answer within {job.timeout_s:g} s."
        return UpstreamResult(
            RunOutcome.TIMEOUT, error_code=ErrorCode.TIMEOUT, error_message=message
        )
    return UpstreamResult(
        RunOutcome.SUCCESS, output=output(said), cost=_cost(job, name, said), counts=_counts(said)
    )


def unasked(code: str, message: str) -> UpstreamResult:
    return _failed(code, message, cost=Decimal(0))


def _cost(job: ToolRun, name: str, said: chat.ModelAnswer) -> Decimal | None:
    """None stands for the reserved cost: for models without a price, and without a token count.

    Never more than was reserved. An endpoint that counts more than its limits allow counts wrong,
    and cannot overdraw a budget.
    """
    price = settings.LLM_PRICES.get(name)
    if price is None or said.input_tokens is None or said.output_tokens is None:
        return None
    counted = prices.cost(price, said.input_tokens, said.output_tokens)
    return min(counted, model_prices.most(job.definition, job.parameters))


def _counts(said: chat.ModelAnswer) -> dict[str, int]:
    if said.input_tokens is None or said.output_tokens is None:
        return {}
    return {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}


def _failed(code: str, message: str, *, cost: Decimal | None) -> UpstreamResult:
    return UpstreamResult(RunOutcome.FAILED, error_code=code, error_message=message, cost=cost)
