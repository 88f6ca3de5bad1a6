"""An agent of Pydantic AI whose tools are Toolcrib's: python pydantic_ai_agent.py "…" """

import asyncio
import os
import sys
from typing import Any

from pydantic_ai import Agent, RunContext, ToolDefinition, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolbox import INSTRUCTIONS, MOST_STEPS, Toolbox

MOST_FLAWS = 5  # made-up names, or arguments that are no JSON, before the run is given up
ANY = SchemaValidator(core_schema.any_schema())  # Toolcrib holds the arguments against the schema


class Toolcrib(AbstractToolset[None]):
    """Asked before each step for what may be called then."""

    id = "toolcrib"

    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        tools = await asyncio.to_thread(self.toolbox.tools)
        return {tool["name"]: self.offered(tool) for tool in tools}

    def offered(self, tool: dict[str, Any]) -> ToolsetTool[None]:
        definition = ToolDefinition(
            name=tool["name"],
            description=tool["description"],
            parameters_json_schema=tool["input_schema"],
            sequential=True,
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=MOST_FLAWS, args_validator=ANY
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> str:
        return await asyncio.to_thread(self.toolbox.call, name, tool_args)


def main(question: str) -> None:
    model = OpenAIChatModel(os.environ["MODEL"])  # OPENAI_BASE_URL and OPENAI_API_KEY
    with Toolbox.of_environment() as toolbox:
        agent = Agent(
            model,
            instructions=INSTRUCTIONS,
            toolsets=[Toolcrib(toolbox)],
            model_settings={"parallel_tool_calls": False},
            retries={"tools": MOST_FLAWS},
        )
        limits = UsageLimits(request_limit=MOST_STEPS)
        print(agent.run_sync(question, usage_limits=limits).output)


if __name__ == "__main__":
    main(sys.argv[1])
