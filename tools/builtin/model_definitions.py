"""The definition of the built-in tool that asks a model one question of an agent."""

from typing import Any

from tools.definitions.implementations.tool_types import ASK_MODEL

# An agent's conversation; `action` and `action_id` are of models that call tools natively.
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"type": "string"},
        "action": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "minLength": 1, "maxLength": 128},
                "name": {"type": "string", "minLength": 1, "maxLength": 128},
                "arguments": {"type": "object"},
            },
            "required": ["id", "name", "arguments"],
            "additionalProperties": False,
        },
        "further_actions": {
            "type": "array",
            "maxItems": 127,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "minLength": 1, "maxLength": 128},
                    "name": {"type": "string", "maxLength": 128},
                    "arguments": {"type": ["object", "string"]},
                },
                "required": ["id", "name", "arguments"],
                "additionalProperties": False,
            },
        },
        "action_id": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "required": ["role", "content"],
    "additionalProperties": False,
    "dependentRequired": {"further_actions": ["action"]},
    "dependentSchemas": {
        "action": {"properties": {"role": {"const": "assistant"}}},
        "action_id": {"properties": {"role": {"const": "tool"}}},
    },
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {"required": ["action_id"]},
}

_MODEL_TOOL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 128},
        "description": {"type": "string"},
        "parameters": {"type": "object"},
    },
    "required": ["name", "description", "parameters"],
    "additionalProperties": False,
}

_ACTION = {
    "type": ["object", "null"],
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}

MODEL_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": ASK_MODEL,
        "type": "builtin",
        "title": "Ask a model for an agent's next move",
        "description": (
            "Ask the installation's model one question of many messages and read its answer as a"
            " move: one action of a tool, or an answer. Nothing is called by it."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "messages",
                "type": "Array",
                "description": "The conversation so far, in its order.",
                "required": True,
                "schema": {"minItems": 1, "maxItems": 400, "items": _MESSAGE},
            },
            {
                "name": "tools",
                "type": "Array",
                "description": "What the model may call, in the native format.",
                "default": [],
                "schema": {"maxItems": 400, "items": _MODEL_TOOL},
            },
            {
                "name": "format",
                "type": "String",
                "description": "How a move is told: by the endpoint's own tool calls, by the lines"
                " Thought, Action, Arguments and Answer, or not at all: the text is the answer.",
                "default": "plain",
                "enum": ["native", "text", "plain"],
            },
            {
                "name": "model",
                "type": "String",
                "description": "Its name, where it is not the installation's usual one.",
                "default": "",
                "schema": {"maxLength": 200},
            },
            {
                "name": "max_tokens",
                "type": "Integer",
                "description": "How long the answer may be.",
                "default": 1024,
                "schema": {"minimum": 1, "maximum": 16_384},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "All that was said."},
                "thought": {"type": "string"},
                "action": _ACTION,
                "answer": {"type": ["string", "null"]},
                "flaw": {
                    "type": ["string", "null"],
                    "description": "Why it is neither an action nor an answer, for the model.",
                },
                "further_actions": {
                    "type": "array",
                    "description": "Calls of the same reply behind the action, as they were said.",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
                        "required": ["name", "arguments"],
                        "additionalProperties": False,
                    },
                },
                "model": {"type": "string"},
                "warnings": {"type": "array", "items": {"type": "string"}},
                "input_tokens": {"type": ["integer", "null"]},
                "output_tokens": {"type": ["integer", "null"]},
            },
            "required": [
                *("text", "thought", "action", "answer", "flaw", "model", "input_tokens"),
                *("output_tokens", "further_actions", "warnings"),
            ],
            "additionalProperties": False,
        },
        "constraints": {
            "max_execution_time": "PT2M",
            "max_output_size": 2 * 1024 * 1024,
            "allow_side_effects": False,
        },
        "group": ["agents"],
        "delivery": "idempotent",
        "capabilities": ["ask", "model", "agent", "llm"],
        "metadata": {"riskLevel": "low"},
    },
)
