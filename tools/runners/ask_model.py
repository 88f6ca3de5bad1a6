"""`ask_model`: asks a model one question of an agent, and parses the answer as a move.

It runs in the worker, since the model's key never enters the sandbox.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.conf import settings

from tools.catalog import model_prices
from tools.llm import chat, moves, reasoning
from tools.runners import asking
from tools.runners.base import ToolRun, UpstreamResult

Tell = Callable[[str], None]
_STOP = (f"\n{moves.OBSERVATION}",)
_CUT = (
    "The reply was cut by its endpoint (finish_reason length or content_filter); its end is gone."
)
_CUT_SHORT = "Your reply was cut: it was too long, or a filter ended it."
# The reply is twice in the output, and every character of it may be escaped there.
_OF_OUTPUT = 8


def run(job: ToolRun) -> UpstreamResult:
    given = job.arguments
    name = model_prices.model_asked(given)
    if objection := _objection(given) or asking.objection(name):
        return objection
    question = chat.ChatRequest(
        [_message(one) for one in given["messages"]],
        chat.AnswerLimits(given["max_tokens"], job.definition.max_output_bytes // _OF_OUTPUT),
        tools=[{"type": "function", "function": tool} for tool in given["tools"]],
        stop=_STOP if given["format"] == "text" else (),
    )
    tell, read = _reading(given["format"], job.tell)
    return asking.ask(job, name, question, tell, lambda said: _output(read(said), name, said))


def _reading(form: str, tell: Tell) -> tuple[Tell, Callable[[chat.ModelAnswer], moves.ModelReply]]:
    """What is streamed of an answer, and how it is parsed once it is whole."""
    if form == "text":
        reader = moves.ModelReplyParser(tell)
        return reader.feed, lambda _: reader.close()
    if form == "native":
        return reasoning.ReasoningFilter(tell).feed, lambda said: moves.native(
            said.text, said.call, said.more
        )
    return reasoning.ReasoningFilter(tell).feed, lambda said: moves.plain(said.text)


def _objection(given: dict[str, Any]) -> UpstreamResult | None:
    named = given["model"]
    if named and named != settings.LLM_MODEL and named not in settings.LLM_PRICES:
        return asking.unasked(
            "MODEL_NOT_ALLOWED",
            f"The model {named[:60]} may not be asked: it is neither LLM_MODEL nor in LLM_PRICES. "
            "Name another, or none.",
        )
    if given["tools"] and given["format"] != "native":
        return asking.unasked("PROMPT_INVALID", "Only the native format takes tools.")
    most = model_prices.MOST_ASKED_BYTES
    if model_prices.weight(given) > most:
        return asking.unasked("PROMPT_TOO_LONG", f"Messages and tools are more than {most} bytes.")
    return None


def _message(given: dict[str, Any]) -> dict[str, Any]:
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


def _output(move: moves.ModelReply, model: str, said: chat.ModelAnswer) -> dict[str, Any]:
    counted = {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}
    found = asdict(move)
    found["further_actions"] = list(found.pop("further"))
    if said.cut and move.flaw:
        found["flaw"] = f"{_CUT_SHORT} {move.flaw}"
    warnings = [_CUT] if said.cut else []
    return found | {"model": model, "warnings": warnings} | counted
