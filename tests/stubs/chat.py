"""Whole answers of an OpenAI-compatible endpoint, with native tool calls, for `tests.stubs.llm`.

model.answers(calls(call("read_file", {"path": "a"})), says("Done."))
"""

import itertools
import json
from typing import Any

from tests.stubs.web import Reply

_numbers = itertools.count(1)


def call(name: str, arguments: Any) -> dict[str, Any]:
    """One call of a model; arguments that are a text are sent as they stand."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    return {"id": f"call_{next(_numbers)}", "type": "function", "function": function}


def calls(*wanted: dict[str, Any]) -> Reply:
    return _completion({"content": None, "tool_calls": list(wanted)}, "tool_calls")


def says(text: str) -> Reply:
    return _completion({"content": text}, "stop")


def _completion(message: dict[str, Any], reason: str) -> Reply:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": reason,
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return Reply(200, [("Content-Type", "application/json")], json.dumps(body).encode())
