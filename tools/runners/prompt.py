"""Runs prompt tools: the question is built here, the model's answer is the output."""

from dataclasses import replace
from typing import Any

from sandbox.spec import RunOutcome
from tools.catalog import model_prices
from tools.definitions.texts import templates
from tools.llm import chat, reasoning
from tools.runners import asking
from tools.runners.base import ToolRun, UpstreamResult


def run(job: ToolRun) -> UpstreamResult:
    """The template rendered with the arguments."""
    template = job.definition.raw["implementation"]["template"]
    try:
        return _ask(job, templates.render_template(template, job.arguments))
    except templates.CannotRender as flaw:
        return asking.unasked("PROMPT_INVALID", str(flaw))


def run_completion(job: ToolRun) -> UpstreamResult:
    """The caller's question, unchanged."""
    question = job.arguments.get("question", job.arguments.get("prompt"))
    if not isinstance(question, str):
        return asking.unasked("PROMPT_INVALID", "The question must be a text.")
    return _ask(job, question)


def _ask(job: ToolRun, prompt: str) -> UpstreamResult:
    implementation = job.definition.raw["implementation"]
    name, system = model_prices.model_of(implementation), implementation["system"]
    if objection := asking.objection(name):
        return objection
    most = model_prices.prompt_bytes(implementation)
    if _weight(prompt, system) > most:
        return asking.unasked("PROMPT_TOO_LONG", f"The prompt is longer than {most} bytes.")
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    limits = chat.AnswerLimits(
        model_prices.max_tokens(implementation), job.definition.max_output_bytes
    )
    question = chat.ChatRequest(messages, limits)
    told = reasoning.ReasoningFilter(job.tell)
    done = asking.ask(job, name, question, told.feed, lambda said: said)
    if not isinstance(done.output, chat.ModelAnswer):
        return done
    return replace(done, **_outcome(done.output))


def _outcome(said: chat.ModelAnswer) -> dict[str, Any]:
    """A truncated answer is an error, as is reasoning without an answer."""
    answer = reasoning.visible(said.text)
    answer = answer if answer == said.text else answer.strip()
    if said.cut:
        message = (
            "The model's answer was cut by its endpoint, at max_tokens or by a filter. Raise "
            "max_tokens, or ask for less."
        )
        return _failure("MODEL_CUT", message)
    if not answer and said.text.strip():
        return _failure("MODEL_NO_ANSWER", "The model reasoned and gave no answer.")
    return {"output": answer}


def _failure(code: str, message: str) -> dict[str, Any]:
    failed = {"outcome": RunOutcome.FAILED, "output": None}
    return failed | {"error_code": code, "error_message": message}


def _weight(prompt: str, system: str | None) -> int:
    return len(prompt.encode("utf-8", "replace")) + len((system or "").encode())
