"""Runs prompt tools: the question is built here, the model's answer is the output."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.conf import settings

from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from tools.catalog import model_prices
from tools.definitions.texts import templates
from tools.httpclient.upstream_pool import RequestBounds, RequestStopped, TimeUp, UpstreamPool
from tools.llm import chat, model_replies, reasoning
from tools.runners.tool_runs import ToolRun, UpstreamResult

Tell = Callable[[str], None]
_STOP_TEXTS = (f"\n{model_replies.OBSERVATION}",)
_CUT_WARNING = (
    "The reply was cut by its endpoint (finish_reason length or content_filter); its end is gone."
)
_CUT_FLAW = "Your reply was cut: it was too long, or a filter ended it."
# The reply is twice in the output, and every character of it may be escaped there.
_OUTPUT_SHARE = 8


@lru_cache(maxsize=1)
def _model_connections() -> UpstreamPool:
    """Connections to the models' endpoint; kept, never made in a call."""
    return UpstreamPool()


def model_refusal(name: str) -> UpstreamResult | None:
    """Why the model of this name is refused, for the caller."""
    if not settings.LLM_BASE_URL or not name:
        return refuse_question(
            "MODEL_NOT_CONFIGURED",
            "This installation has no model. An administrator sets LLM_BASE_URL and LLM_MODEL.",
        )
    if settings.LLM_PRICES and name not in settings.LLM_PRICES:
        return refuse_question(
            "MODEL_NOT_PRICED",
            f"This installation has no price for the model {name[:60]}, so no budget could hold "
            "for it. An administrator adds it to LLM_PRICES.",
        )
    return None


def ask_model(
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
        said = chat.ask(_model_connections(), model, question, bounds, tell)
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
        RunOutcome.SUCCESS,
        output=output(said),
        cost=_answer_cost(job, name, said),
        counts=_token_counts(said),
    )


def refuse_question(code: str, message: str) -> UpstreamResult:
    return _failed(code, message, cost=Decimal(0))


def _answer_cost(job: ToolRun, name: str, said: chat.ModelAnswer) -> Decimal | None:
    """None stands for the reserved cost: for models without a price, and without a token count.

    Never more than was reserved. An endpoint that counts more than its limits allow counts wrong,
    and cannot overdraw a budget.
    """
    price = settings.LLM_PRICES.get(name)
    if price is None or said.input_tokens is None or said.output_tokens is None:
        return None
    counted = model_prices.cost(price, said.input_tokens, said.output_tokens)
    return min(counted, model_prices.most(job.definition, job.parameters))


def _token_counts(said: chat.ModelAnswer) -> dict[str, int]:
    if said.input_tokens is None or said.output_tokens is None:
        return {}
    return {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}


def _failed(code: str, message: str, *, cost: Decimal | None) -> UpstreamResult:
    return UpstreamResult(RunOutcome.FAILED, error_code=code, error_message=message, cost=cost)


def run_prompt(job: ToolRun) -> UpstreamResult:
    """The template rendered with the arguments."""
    template = job.definition.raw["implementation"]["template"]
    try:
        return _run_prompt(job, templates.render_template(template, job.arguments))
    except templates.CannotRender as flaw:
        return refuse_question("PROMPT_INVALID", str(flaw))


def run_completion(job: ToolRun) -> UpstreamResult:
    """The caller's question, unchanged."""
    question = job.arguments.get("question", job.arguments.get("prompt"))
    if not isinstance(question, str):
        return refuse_question("PROMPT_INVALID", "The question must be a text.")
    return _run_prompt(job, question)


def _run_prompt(job: ToolRun, prompt: str) -> UpstreamResult:
    implementation = job.definition.raw["implementation"]
    name, system = model_prices.model_of(implementation), implementation["system"]
    if objection := model_refusal(name):
        return objection
    most = model_prices.prompt_bytes(implementation)
    if _prompt_size(prompt, system) > most:
        return refuse_question("PROMPT_TOO_LONG", f"The prompt is longer than {most} bytes.")
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    limits = chat.AnswerLimits(
        model_prices.max_tokens(implementation), job.definition.max_output_bytes
    )
    question = chat.ChatRequest(messages, limits)
    told = reasoning.ReasoningFilter(job.tell)
    done = ask_model(job, name, question, told.feed, lambda said: said)
    if not isinstance(done.output, chat.ModelAnswer):
        return done
    return replace(done, **_answer_outcome(done.output))


def _answer_outcome(said: chat.ModelAnswer) -> dict[str, Any]:
    """A truncated answer is an error, as is reasoning without an answer."""
    answer = reasoning.visible(said.text)
    answer = answer if answer == said.text else answer.strip()
    if said.cut:
        message = (
            "The model's answer was cut by its endpoint, at max_tokens or by a filter. Raise "
            "max_tokens, or ask for less."
        )
        return _failure_fields("MODEL_CUT", message)
    if not answer and said.text.strip():
        return _failure_fields("MODEL_NO_ANSWER", "The model reasoned and gave no answer.")
    return {"output": answer}


def _failure_fields(code: str, message: str) -> dict[str, Any]:
    failed = {"outcome": RunOutcome.FAILED, "output": None}
    return failed | {"error_code": code, "error_message": message}


def _prompt_size(prompt: str, system: str | None) -> int:
    return len(prompt.encode("utf-8", "replace")) + len((system or "").encode())


def run_ask_model(job: ToolRun) -> UpstreamResult:
    given = job.arguments
    name = model_prices.model_asked(given)
    if objection := _question_refusal(given) or model_refusal(name):
        return objection
    question = chat.ChatRequest(
        [_chat_message(one) for one in given["messages"]],
        chat.AnswerLimits(given["max_tokens"], job.definition.max_output_bytes // _OUTPUT_SHARE),
        tools=[{"type": "function", "function": tool} for tool in given["tools"]],
        stop=_STOP_TEXTS if given["format"] == "text" else (),
    )
    tell, read = _reply_readers(given["format"], job.tell)
    return ask_model(job, name, question, tell, lambda said: _reply_output(read(said), name, said))


def _reply_readers(
    form: str, tell: Tell
) -> tuple[Tell, Callable[[chat.ModelAnswer], model_replies.ModelReply]]:
    """What is streamed of an answer, and how it is parsed once it is whole."""
    if form == "text":
        reader = model_replies.ModelReplyParser(tell)
        return reader.feed, lambda _: reader.close()
    if form == "native":
        return reasoning.ReasoningFilter(tell).feed, lambda said: model_replies.native(
            said.text, said.call, said.more
        )
    return reasoning.ReasoningFilter(tell).feed, lambda said: model_replies.plain(said.text)


def _question_refusal(given: dict[str, Any]) -> UpstreamResult | None:
    named = given["model"]
    if named and named != settings.LLM_MODEL and named not in settings.LLM_PRICES:
        return refuse_question(
            "MODEL_NOT_ALLOWED",
            f"The model {named[:60]} may not be asked: it is neither LLM_MODEL nor in LLM_PRICES. "
            "Name another, or none.",
        )
    if given["tools"] and given["format"] != "native":
        return refuse_question("PROMPT_INVALID", "Only the native format takes tools.")
    most = model_prices.MOST_ASKED_BYTES
    if model_prices.weight(given) > most:
        return refuse_question("PROMPT_TOO_LONG", f"Messages and tools are more than {most} bytes.")
    return None


def _chat_message(given: dict[str, Any]) -> dict[str, Any]:
    """In the protocol's form."""
    message = {"role": given["role"], "content": given["content"]}
    if "action_id" in given:
        message["tool_call_id"] = given["action_id"]
    actions = [*filter(None, [given.get("action")]), *given.get("further_actions", [])]
    if actions:
        message["content"] = given["content"] or None
        message["tool_calls"] = [_tool_call(one) for one in actions]
    return message


def _tool_call(action: dict[str, Any]) -> dict[str, Any]:
    arguments = action["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": action["name"], "arguments": arguments}
    return {"id": action["id"], "type": "function", "function": function}


def _reply_output(
    move: model_replies.ModelReply, model: str, said: chat.ModelAnswer
) -> dict[str, Any]:
    counted = {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}
    found = asdict(move)
    found["further_actions"] = list(found.pop("further"))
    if said.cut and move.flaw:
        found["flaw"] = f"{_CUT_FLAW} {move.flaw}"
    warnings = [_CUT_WARNING] if said.cut else []
    return found | {"model": model, "warnings": warnings} | counted
