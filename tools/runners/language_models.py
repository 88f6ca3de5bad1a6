"""Runs tools that ask a language model: prompt tools, text completion, and `ask_model`.

The worker sends the questions itself, since the key of the model never enters the sandbox. Each
question has its cost: what the model tokens, or what was reserved for it.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.conf import settings

from sandbox.spec import RunOutcome
from tools.catalog import model_prices
from tools.definitions.texts import templates
from tools.httpclient.upstream_pool import RequestBounds, RequestStopped, TimeUp, UpstreamPool
from tools.llm import chat, model_replies, reasoning
from tools.runners.tool_runs import (
    ToolRun,
    UpstreamResult,
    failed_result,
    stopped_result,
    timeout_result,
)

Tell = Callable[[str], None]
_STOP_TEXTS = (f"\n{model_replies.OBSERVATION}",)
_CUT_WARNING = (
    "The reply was cut by its endpoint (finish_reason length or content_filter); its end is gone."
)
_CUT_FLAW = "Your reply was cut: it was too long, or a filter ended it."
# The reply is twice in the output, and every character of it may be escaped there.
_OUTPUT_SHARE = 8


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
        reply = chat.ask(_model_connections(), model, question, bounds, tell)
    except chat.ModelFailure as failure:
        cost = None if failure.began else Decimal(0)
        return failed_result(failure.code, failure.message, cost=cost)
    except RequestStopped:
        return stopped_result()
    except TimeUp:
        return timeout_result(f"The model did not answer within {job.timeout_s:g} s.")
    return UpstreamResult(
        RunOutcome.SUCCESS,
        output=output(reply),
        cost=_answer_cost(job, name, reply),
        counts=_token_counts(reply),
    )


def refuse_question(code: str, message: str) -> UpstreamResult:
    return failed_result(code, message, cost=Decimal(0))


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


def run_ask_model(job: ToolRun) -> UpstreamResult:
    """One question of an agent; the answer is parsed as its move."""
    arguments = job.arguments
    name = model_prices.model_asked(arguments)
    if objection := _question_refusal(arguments) or model_refusal(name):
        return objection
    question = chat.ChatRequest(
        [_chat_message(one) for one in arguments["messages"]],
        chat.AnswerLimits(
            arguments["max_tokens"], job.definition.max_output_bytes // _OUTPUT_SHARE
        ),
        tools=[{"type": "function", "function": tool} for tool in arguments["tools"]],
        stop=_STOP_TEXTS if arguments["format"] == "text" else (),
    )
    tell, read = _reply_readers(arguments["format"], job.tell)
    return ask_model(
        job, name, question, tell, lambda reply: _reply_output(read(reply), name, reply)
    )


@lru_cache(maxsize=1)
def _model_connections() -> UpstreamPool:
    """The connections of this process to the endpoint of models, which calls share."""
    return UpstreamPool()


def _answer_cost(job: ToolRun, name: str, reply: chat.ModelAnswer) -> Decimal | None:
    """None stands for the reserved cost: for models without a price, and without a token count.

    Never more than was reserved. An endpoint that counts more than its limits allow counts wrong,
    and cannot overdraw a budget.
    """
    price = settings.LLM_PRICES.get(name)
    if price is None or reply.input_tokens is None or reply.output_tokens is None:
        return None
    tokens = model_prices.cost(price, reply.input_tokens, reply.output_tokens)
    return min(tokens, model_prices.most(job.definition, job.parameters))


def _token_counts(reply: chat.ModelAnswer) -> dict[str, int]:
    if reply.input_tokens is None or reply.output_tokens is None:
        return {}
    return {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}


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
    answer_filter = reasoning.ReasoningFilter(job.tell)
    done = ask_model(job, name, question, answer_filter.feed, lambda reply: reply)
    if not isinstance(done.output, chat.ModelAnswer):
        return done
    return replace(done, **_answer_outcome(done.output))


def _answer_outcome(reply: chat.ModelAnswer) -> dict[str, Any]:
    """A truncated answer is an error, as is reasoning without an answer."""
    answer = reasoning.visible_text(reply.text)
    answer = answer if answer == reply.text else answer.strip()
    if reply.cut:
        message = (
            "The model's answer was cut by its endpoint, at max_tokens or by a filter. Raise "
            "max_tokens, or ask for less."
        )
        return _failure_fields("MODEL_CUT", message)
    if not answer and reply.text.strip():
        return _failure_fields("MODEL_NO_ANSWER", "The model reasoned and gave no answer.")
    return {"output": answer}


def _failure_fields(code: str, message: str) -> dict[str, Any]:
    failed = {"outcome": RunOutcome.FAILED, "output": None}
    return failed | {"error_code": code, "error_message": message}


def _prompt_size(prompt: str, system: str | None) -> int:
    return len(prompt.encode("utf-8", "replace")) + len((system or "").encode())


def _reply_readers(
    form: str, tell: Tell
) -> tuple[Tell, Callable[[chat.ModelAnswer], model_replies.ModelReply]]:
    """What is streamed of an answer, and how it is parsed once it is whole."""
    if form == "text":
        reader = model_replies.ModelReplyParser(tell)
        return reader.feed, lambda _: reader.close()
    if form == "native":
        return reasoning.ReasoningFilter(tell).feed, lambda reply: model_replies.parse_native(
            reply.text, reply.call, reply.more
        )
    return reasoning.ReasoningFilter(tell).feed, lambda reply: model_replies.parse_text(reply.text)


def _question_refusal(arguments: dict[str, Any]) -> UpstreamResult | None:
    model = arguments["model"]
    if model and model != settings.LLM_MODEL and model not in settings.LLM_PRICES:
        return refuse_question(
            "MODEL_NOT_ALLOWED",
            f"The model {model[:60]} may not be asked: it is neither LLM_MODEL nor in LLM_PRICES. "
            "Name another, or none.",
        )
    if arguments["tools"] and arguments["format"] != "native":
        return refuse_question("PROMPT_INVALID", "Only the native format takes tools.")
    most = model_prices.MOST_ASKED_BYTES
    if model_prices.weight(arguments) > most:
        return refuse_question("PROMPT_TOO_LONG", f"Messages and tools are more than {most} bytes.")
    return None


def _chat_message(turn: dict[str, Any]) -> dict[str, Any]:
    """One turn of the conversation, in the form of the protocol."""
    message = {"role": turn["role"], "content": turn["content"]}
    if "action_id" in turn:
        message["tool_call_id"] = turn["action_id"]
    actions = [*filter(None, [turn.get("action")]), *turn.get("further_actions", [])]
    if actions:
        message["content"] = turn["content"] or None
        message["tool_calls"] = [_tool_call(one) for one in actions]
    return message


def _tool_call(action: dict[str, Any]) -> dict[str, Any]:
    arguments = action["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": action["name"], "arguments": arguments}
    return {"id": action["id"], "type": "function", "function": function}


def _reply_output(
    move: model_replies.ModelReply, model: str, reply: chat.ModelAnswer
) -> dict[str, Any]:
    tokens = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    found = asdict(move)
    found["further_actions"] = list(found.pop("further"))
    if reply.cut and move.flaw:
        found["flaw"] = f"{_CUT_FLAW} {move.flaw}"
    warnings = [_CUT_WARNING] if reply.cut else []
    return found | {"model": model, "warnings": warnings} | tokens
