"""A definition as the endpoints of models take it: what a model needs of it and no more."""

from enum import StrEnum
from typing import Any


class Form(StrEnum):
    DEFINITION = "definition"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


def offer(definition: dict[str, Any], form: Form) -> dict[str, Any]:
    """Of a canonical definition, in the form of an endpoint."""
    said = {"name": definition["name"], "description": definition["description"]}
    schema = definition["input_schema"]
    if form == Form.ANTHROPIC:
        return said | {"input_schema": schema}
    return {"type": "function", "function": said | {"parameters": schema}}
