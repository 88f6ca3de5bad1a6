"""An agent of the standard library alone: python plain_http.py "your question" """

import json
import os
import sys
import urllib.request
from typing import Any

from toolbox import INSTRUCTIONS, MOST_STEPS, Toolbox


def main(question: str) -> None:
    with Toolbox.of_environment() as toolbox:
        print(answer(question, toolbox))


def answer(question: str, toolbox: Toolbox) -> str:
    said = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    for _ in range(MOST_STEPS):
        message = ask(said, toolbox.tools("openai"))
        said.append(message)
        if not message.get("tool_calls"):
            return message.get("content") or ""
        said += [observation(call, toolbox) for call in message["tool_calls"]]
    return f"There was no answer after {MOST_STEPS} steps."


def ask(said: list[Any], functions: list[Any]) -> dict[str, Any]:
    """The model's next message: calls, or the answer."""
    body: dict[str, Any] = {"model": os.environ["MODEL"], "messages": said}
    if functions:
        body |= {"tools": functions, "parallel_tool_calls": False}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL'].rstrip('/')}/chat/completions",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        message: dict[str, Any] = json.load(reply)["choices"][0]["message"]
        return message


def observation(call: dict[str, Any], toolbox: Toolbox) -> dict[str, Any]:
    """What came of a call, as the model reads it."""
    try:
        arguments = json.loads(call["function"]["arguments"])
    except ValueError:
        seen = "The arguments are not JSON. Nothing was called."
    else:
        seen = toolbox.call(call["function"]["name"], arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": seen}


if __name__ == "__main__":
    main(sys.argv[1])
