"""An agent of LangChain whose tools are Toolcrib's: python langchain_agent.py "your question" """

import os
import sys
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelCallLimitMiddleware,
    ModelRequest,
    ModelResponse,
    hook_config,
)
from langchain.messages import ToolMessage
from langchain.tools.tool_node import ToolCallRequest
from langchain_openai import ChatOpenAI
from langsmith import tracing_context

from toolbox import INSTRUCTIONS, MOST_STEPS, Toolbox


class Toolcrib(AgentMiddleware):
    """Offers what may be called now before each step, and has every call made by Toolcrib.

    No tool is registered with LangChain: whatever name a model says, Toolcrib decides.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__()
        self.toolbox = toolbox

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        tools = self.toolbox.tools("openai")
        settings = {"parallel_tool_calls": False} if tools else {}
        return handler(request.override(tools=tools, model_settings=settings))

    def wrap_tool_call(self, request: ToolCallRequest, handler: object) -> ToolMessage:
        call = request.tool_call
        seen = self.toolbox.call(call["name"], call["args"])
        return ToolMessage(seen, tool_call_id=call["id"], name=call["name"])

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: object) -> dict[str, Any] | None:
        """LangChain would end the run where arguments are not JSON; the model may try again."""
        said = state["messages"][-1]
        flaws = [
            ToolMessage("The arguments are not JSON. Nothing was called.", tool_call_id=call["id"])
            for call in said.invalid_tool_calls
        ]
        again = {"jump_to": "model"} if flaws and not said.tool_calls else {}
        return {"messages": flaws, **again}


def main(question: str) -> None:
    model = ChatOpenAI(model=os.environ["MODEL"])  # OPENAI_BASE_URL and OPENAI_API_KEY
    with Toolbox.of_environment() as toolbox, tracing_context(enabled=False):  # no LangSmith
        middleware = [Toolcrib(toolbox), ModelCallLimitMiddleware(run_limit=MOST_STEPS)]
        agent = create_agent(model, system_prompt=INSTRUCTIONS, middleware=middleware)
        ended = agent.invoke({"messages": [("user", question)]})
        print(ended["messages"][-1].text)


if __name__ == "__main__":
    main(sys.argv[1])
