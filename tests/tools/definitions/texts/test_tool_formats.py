"""Tool descriptions in the formats of model endpoints and of other clients."""

import pytest

from tools.definitions.texts.tool_formats import FORMATTERS, ToolTextFormat
from tools.definitions.tool import ToolDefinition

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = ToolDefinition(
    {
        "name": "echo",
        "title": "Echo",
        "description": "Says it again.",
        "input_schema": SCHEMA,
        "output_schema": {"type": "object"},
        "implementation": {"source": "of nobody's business"},
    }
)
SAID = {"name": "echo", "description": "Says it again."}


def test_openai_takes_a_function():
    function = {**SAID, "parameters": SCHEMA}
    assert FORMATTERS[ToolTextFormat.OPENAI](TOOL) == {"type": "function", "function": function}


def test_anthropic_takes_a_tool():
    assert FORMATTERS[ToolTextFormat.ANTHROPIC](TOOL) == {**SAID, "input_schema": SCHEMA}


def test_mcp_takes_both_schemas():
    schemas = {"inputSchema": SCHEMA, "outputSchema": {"type": "object"}}
    assert FORMATTERS[ToolTextFormat.MCP](TOOL) == {**SAID, "title": "Echo", **schemas}


@pytest.mark.parametrize(
    "form", [form for form in ToolTextFormat if form != ToolTextFormat.TRUSTGRAPH]
)
def test_nothing_else_of_a_tool_reaches_a_model(form):
    assert "business" not in str(FORMATTERS[form](TOOL))
