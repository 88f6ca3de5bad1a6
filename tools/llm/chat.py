"""Asks a model behind an OpenAI-compatible endpoint one question, answered as a stream.

The response is untrusted: its size, its counts and its time are bounded, and an incomplete answer
is an error. The API key is only in a header.
"""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.values import strict_json
from tools.httpclient.upstream_pool import (
    Broken,
    RequestBounds,
    Unreachable,
    UpstreamPool,
    UpstreamResponse,
)
from tools.llm import model_answers
from tools.llm.model_answers import AnswerLimits, ModelAnswer, ModelFailure

__all__ = ["AnswerLimits", "ChatRequest", "Model", "ModelAnswer", "ModelFailure", "ask"]
log = logging.getLogger(__name__)
ATTEMPTS = 3
LONGEST_PAUSE_S = 10.0
_LONGEST_COMPLAINT = 2_000
_BUSY_STATUSES = frozenset({429, 503})
_WITHOUT_TOOLS = frozenset({400, 404, 422})  # statuses of endpoints that do not support tools
_SECONDS = re.compile(r"\d{1,4}")


@dataclass(frozen=True)
class Model:
    """`url` is the endpoint's base, `https://host/v1` for instance."""

    url: str
    name: str
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class ChatRequest:
    """Messages and tools are in the protocol's form; an answer ends before one of the texts of
    `stop`."""

    messages: list[dict[str, Any]]
    limits: AnswerLimits
    tools: list[dict[str, Any]] = field(default_factory=list)
    stop: tuple[str, ...] = ()


def ask(
    upstream: UpstreamPool,
    model: Model,
    question: ChatRequest,
    bounds: RequestBounds,
    tell: Callable[[str], None],
) -> ModelAnswer:
    """Each piece of the answer is passed to `tell` as it arrives. Raises `ModelFailure`, and what
    ends a run: `Stopped` and `TimeUp`."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with upstream.post(*_request(model, question), bounds) as answer:
                if answer.status == 200:
                    return model_answers.read_answer(answer, question.limits, tell)
                pause_s = _refuse_or_pause(answer, model, question, last=attempt == ATTEMPTS)
        except Unreachable as error:
            log.error("the model's endpoint cannot be reached: %s", error)
            raise ModelFailure(
                "MODEL_UNAVAILABLE", "The model cannot be reached. Try again later.", began=False
            ) from None
        except (Broken, model_answers.BadStream, strict_json.BadJson) as error:
            log.error("the answer of model %s was cut or cannot be read: %s", model.name, error)
            raise ModelFailure(
                "MODEL_CUT", "The model's answer did not come to its end. Try again.", began=True
            ) from None
        bounds.pause(pause_s)
    raise AssertionError("the last attempt returns or raises")


def _request(model: Model, question: ChatRequest) -> tuple[str, dict[str, str], bytes]:
    body = {
        "model": model.name,
        "messages": question.messages,
        "max_tokens": question.limits.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if question.tools:
        body["tools"] = question.tools
    if question.stop:
        body["stop"] = question.stop
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if model.key:
        headers["Authorization"] = f"Bearer {model.key}"
    return f"{model.url.rstrip('/')}/chat/completions", headers, json.dumps(body).encode()


def _refuse_or_pause(
    answer: UpstreamResponse, model: Model, question: ChatRequest, *, last: bool
) -> float:
    """How long to wait before the next attempt. Raises `ModelFailure` where there is none."""
    status = answer.status
    complaint = answer.body(_LONGEST_COMPLAINT).decode("utf-8", "replace")
    if model.key:
        complaint = complaint.replace(model.key, "***")
    log.error("the endpoint of model %s answered %d: %.300r", model.name, status, complaint)
    if status in {401, 403}:
        raise ModelFailure(
            "MODEL_REFUSED",
            "The model's endpoint refused this installation; its operators have a record of it.",
            began=False,
        )
    if status in _BUSY_STATUSES:
        if last:
            raise ModelFailure("MODEL_BUSY", "The model is busy. Try again later.", began=False)
        return _pause_s(answer)
    if question.tools and status in _WITHOUT_TOOLS:
        raise ModelFailure(
            "MODEL_NO_TOOLS", "The model did not take a question with tools.", began=False
        )
    if 400 <= status < 500:
        raise ModelFailure(
            "MODEL_REJECTED",
            "The model's endpoint did not take the question; its operators have a record of it.",
            began=False,
        )
    raise ModelFailure(
        "MODEL_UNAVAILABLE", "The model failed to answer. Try again later.", began=True
    )


def _pause_s(answer: UpstreamResponse) -> float:
    given = answer.headers.get("retry-after", "")
    return min(float(given), LONGEST_PAUSE_S) if _SECONDS.fullmatch(given) else 1.0
