"""Tools that ask a model: the question is made here, the answer is the output."""

import time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.conf import settings

from config.upstreams import Bounds, Stopped, TimeUp, Upstream
from sandbox.errors import ErrorCode
from sandbox.spec import Outcome
from tools.catalog import model_prices
from tools.definitions import templates
from tools.llm import chat, prices
from tools.runners.base import Run, UpstreamResult


def run(job: Run) -> UpstreamResult:
    """A template with the arguments in it."""
    template = job.definition.raw["implementation"]["template"]
    try:
        return _ask(job, templates.render(template, job.arguments))
    except templates.CannotRender as flaw:
        return _unasked("PROMPT_INVALID", str(flaw))


def run_completion(job: Run) -> UpstreamResult:
    """The caller's question as it stands."""
    question = job.arguments.get("question", job.arguments.get("prompt"))
    if not isinstance(question, str):
        return _unasked("PROMPT_INVALID", "The question must be a text.")
    return _ask(job, question)


@lru_cache(maxsize=1)
def _upstream() -> Upstream:
    """Connections to the models' endpoint; kept, never made in a call."""
    return Upstream()


def _ask(job: Run, prompt: str) -> UpstreamResult:
    implementation = job.definition.raw["implementation"]
    name = model_prices.model_of(implementation)
    if not settings.LLM_BASE_URL or not name:
        return _unasked(
            "MODEL_NOT_CONFIGURED",
            "This installation has no model. An administrator sets LLM_BASE_URL and LLM_MODEL.",
        )
    if settings.LLM_PRICES and name not in settings.LLM_PRICES:
        return _unasked(
            "MODEL_NOT_PRICED",
            f"This installation has no price for the model {name[:60]}, so no budget could hold "
            "for it. An administrator adds it to LLM_PRICES.",
        )
    most = model_prices.prompt_bytes(implementation)
    if _weight(prompt, implementation["system"]) > most:
        return _unasked("PROMPT_TOO_LONG", f"The prompt is longer than {most} bytes.")
    question = chat.Question(
        prompt,
        implementation["system"],
        model_prices.max_tokens(implementation),
        job.definition.max_output_bytes,
    )
    model = chat.Model(settings.LLM_BASE_URL, name, settings.LLM_API_KEY)
    bounds = Bounds(job.stop, time.monotonic() + job.timeout_s, job.until)
    return _answered(job, model, question, bounds)


def _answered(
    job: Run, model: chat.Model, question: chat.Question, bounds: Bounds
) -> UpstreamResult:
    try:
        said = chat.ask(_upstream(), model, question, bounds, job.tell)
    except chat.Failure as failure:
        cost = None if failure.began else Decimal(0)
        return _failed(failure.code, failure.message, cost=cost)
    except Stopped:
        return UpstreamResult(
            Outcome.CANCELLED, error_code=ErrorCode.CANCELLED, error_message="The call was stopped."
        )
    except TimeUp:
        message = f"The model did not answer within {job.timeout_s:g} s."
        return UpstreamResult(Outcome.TIMEOUT, error_code=ErrorCode.TIMEOUT, error_message=message)
    return UpstreamResult(
        Outcome.SUCCESS,
        output=said.text,
        cost=_cost(job, model.name, said),
        counts=_counts(said),
    )


def _cost(job: Run, name: str, said: chat.Said) -> Decimal | None:
    """None is what was held: for models without a price, and where nobody counted.

    Never more than was held. An endpoint that counts more than fits into the bounds it was given
    counts wrong, and no budget is overdrawn by it.
    """
    price = settings.LLM_PRICES.get(name)
    if price is None or said.input_tokens is None or said.output_tokens is None:
        return None
    counted = prices.cost(price, said.input_tokens, said.output_tokens)
    return min(counted, model_prices.most(job.definition))


def _counts(said: chat.Said) -> dict[str, Any]:
    if said.input_tokens is None:
        return {}
    return {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}


def _weight(prompt: str, system: str | None) -> int:
    return len(prompt.encode("utf-8", "replace")) + len((system or "").encode())


def _unasked(code: str, message: str) -> UpstreamResult:
    return _failed(code, message, cost=Decimal(0))


def _failed(code: str, message: str, *, cost: Decimal | None) -> UpstreamResult:
    return UpstreamResult(Outcome.FAILED, error_code=code, error_message=message, cost=cost)
