"""What a model's endpoint is told of a tool."""

import pytest

from tools.definitions.offers import Form, offer

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
DEFINITION = {
    "name": "echo",
    "description": "Says it again.",
    "input_schema": SCHEMA,
    "implementation": {"source": "of nobody's business"},
}


def test_openai_takes_a_function():
    assert offer(DEFINITION, Form.OPENAI) == {
        "type": "function",
        "function": {"name": "echo", "description": "Says it again.", "parameters": SCHEMA},
    }


def test_anthropic_takes_a_tool():
    told = {"name": "echo", "description": "Says it again.", "input_schema": SCHEMA}
    assert offer(DEFINITION, Form.ANTHROPIC) == told


@pytest.mark.parametrize("form", [Form.OPENAI, Form.ANTHROPIC])
def test_nothing_else_of_a_tool_reaches_a_model(form):
    assert "business" not in str(offer(DEFINITION, form))
