"""An agent of the OpenAI Agents SDK whose tools are Toolcrib's: python openai_agents.py "…" """

import asyncio
import json
import os
import sys
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    Tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from toolbox import INSTRUCTIONS, MOST_STEPS, Toolbox


class ToolcribAgent(Agent[Toolbox]):
    """The SDK asks for the tools before each turn: what may be called then, and nothing else."""

    async def get_all_tools(self, run_context: RunContextWrapper[Toolbox]) -> list[Tool]:
        return [offered(tool) for tool in await asyncio.to_thread(run_context.context.tools)]


def offered(tool: dict[str, Any]) -> FunctionTool:
    async def invoke(context: RunContextWrapper[Toolbox], arguments: str) -> str:
        try:
            given = json.loads(arguments)
        except ValueError:
            return "The arguments are not JSON. Nothing was called."
        return await asyncio.to_thread(context.context.call, tool["name"], given)

    return FunctionTool(
        name=tool["name"],
        description=tool["description"],
        params_json_schema=tool["input_schema"],
        on_invoke_tool=invoke,
        strict_json_schema=False,  # the schema as it is; Toolcrib holds the arguments against it
    )


async def main(question: str) -> None:
    set_tracing_disabled(True)  # else the SDK sends what happened to OpenAI
    agent = ToolcribAgent(
        name="toolcrib",
        instructions=INSTRUCTIONS,
        model=OpenAIChatCompletionsModel(os.environ["MODEL"], AsyncOpenAI()),
        model_settings=ModelSettings(parallel_tool_calls=False),
    )
    settings = RunConfig(tool_not_found_behavior="return_error_to_model")
    with Toolbox.of_environment() as toolbox:
        ended = await Runner.run(
            agent, question, context=toolbox, max_turns=MOST_STEPS, run_config=settings
        )
        print(ended.final_output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
