"""The definitions of built-in tools that make calls of other tools or run programs."""

from typing import Any

# What became of one call of a batch.
_BATCH_ITEM = {
    "type": "object",
    "properties": {
        "position": {"type": "integer"},
        "tool_name": {"type": "string"},
        "status": {"type": "string"},
        "execution_id": {"type": ["string", "null"]},
        "error_code": {"type": ["string", "null"]},
        "error_message": {"type": ["string", "null"]},
        "output": {},
        "output_left_out": {"type": "boolean"},
    },
    "required": ["position", "tool_name", "status", "execution_id"],
}


CALL_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "run_batch",
        "type": "builtin",
        "title": "Make many calls",
        "description": (
            "Make up to 1,000 calls, one after the other or several at once. Each meets every gate"
            " by itself; where some need a person's consent, one question is asked for all."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "inputs",
                "type": "Array",
                "description": "The calls, in their order.",
                "required": True,
                "schema": {
                    "minItems": 1,
                    "maxItems": 1000,
                    "items": {
                        "type": "object",
                        "properties": {
                            "tool_name": {"type": "string", "minLength": 1, "maxLength": 128},
                            "parameters": {"type": "object"},
                        },
                        "required": ["tool_name", "parameters"],
                        "additionalProperties": False,
                    },
                },
            },
            {
                "name": "mode",
                "type": "String",
                "description": "One after the other, or several at once.",
                "default": "sequential",
                "enum": ["sequential", "parallel"],
            },
            {
                "name": "max_parallel",
                "type": "Integer",
                "description": "How many may be open at once, where it is parallel.",
                "default": 8,
                "schema": {"minimum": 1, "maximum": 50},
            },
            {
                "name": "stop_on_error",
                "type": "Boolean",
                "description": "Make no further call once one has failed.",
                "default": False,
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": _BATCH_ITEM},
                "succeeded": {"type": "integer"},
                "failed": {"type": "integer"},
                "cancelled": {"type": "integer"},
            },
            "required": ["results", "succeeded", "failed", "cancelled"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT24H", "allow_side_effects": True},
        "group": ["composition"],
        "delivery": "idempotent",
        "capabilities": ["batch", "parallel", "many"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "run_agent",
        "type": "builtin",
        "title": "Let an agent work on a question",
        "description": (
            "An agent answers a question with the tools that its caller may use in the groups and"
            " the state of the call. Each thing it does meets every gate by itself."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "question",
                "type": "String",
                "description": "What is to be answered or done.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 20000},
            },
            {
                "name": "pattern",
                "type": "String",
                "description": "Step by step, or by a plan with a confidence for each step.",
                "default": "react",
                "enum": ["react", "plan"],
            },
            {
                "name": "history",
                "type": "Array",
                "description": "Steps that were taken before.",
                "default": [],
                "schema": {
                    "maxItems": 50,
                    "items": {
                        "type": "object",
                        "properties": {
                            "thought": {"type": "string", "maxLength": 20000},
                            "action": {"type": "string", "maxLength": 128},
                            "arguments": {"type": "object"},
                            "observation": {"type": "string", "maxLength": 100000},
                        },
                        "additionalProperties": False,
                    },
                },
            },
            {
                "name": "model",
                "type": "String",
                "description": "Another model than the installation's; one that has a price.",
                "default": "",
                "schema": {"maxLength": 200},
            },
            {
                "name": "max_iterations",
                "type": "Integer",
                "description": "After so many turns it gives the best answer it has.",
                "default": 10,
                "schema": {"minimum": 1, "maximum": 50},
            },
            {
                "name": "max_tokens",
                "type": "Integer",
                "description": "Of all its questions to the model and their answers together.",
                "default": 100000,
                "schema": {"minimum": 1, "maximum": 2000000},
            },
            {
                "name": "max_cost",
                "type": "String",
                "description": "What all its calls may cost together; empty: what its caller may.",
                "default": "",
                "schema": {"pattern": r"^(\d{1,9}(\.\d{1,6})?)?$"},
            },
            {
                "name": "confidence",
                "type": "Number",
                "description": "Of a plan: a person is asked about a step that is less sure.",
                "default": 0.7,
                "schema": {"minimum": 0, "maximum": 1},
            },
            {
                "name": "thresholds",
                "type": "Object",
                "description": "The same by the name of a tool.",
                "default": {},
                "schema": {
                    "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1},
                    "maxProperties": 100,
                },
            },
            {
                "name": "continues",
                "type": "String",
                "description": "A request of an agent that this one goes on from.",
                "default": "",
                "schema": {"maxLength": 36},
            },
            {
                "name": "replays",
                "type": "String",
                "description": "One whose recorded results stand for calls: no tool is called.",
                "default": "",
                "schema": {"maxLength": 36},
            },
            {
                "name": "shared_with",
                "type": "Array",
                "description": "Agents that may go on from this one, if they have the same rights.",
                "default": [],
                "schema": {
                    "items": {"type": "string", "minLength": 1, "maxLength": 63},
                    "maxItems": 20,
                },
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "answer": {"type": "string"},
                "session": {"type": ["string", "null"]},
                "state": {"type": "string"},
                "iterations": {"type": "integer"},
                "tokens": {
                    "type": "object",
                    "properties": {
                        "input": {"type": "integer"},
                        "output": {"type": "integer"},
                    },
                    "required": ["input", "output"],
                    "additionalProperties": False,
                },
                "cost": {"type": "string"},
                "plan": {"type": ["object", "null"]},
            },
            "required": ["answer", "session", "state", "iterations", "tokens", "cost"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT24H", "allow_side_effects": True},
        "group": ["agents"],
        "delivery": "idempotent",
        "capabilities": ["agent", "reason", "plan"],
        "metadata": {"riskLevel": "medium"},
    },
    {
        "name": "call_tool",
        "type": "builtin",
        "title": "Call a tool by its name",
        "description": (
            "Call a tool that find_tools has found, without its definition loaded. Every limit of"
            " that tool holds, as if it were called directly."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "tool_name",
                "type": "String",
                "description": "As find_tools names it.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 128},
            },
            {
                "name": "parameters",
                "type": "Object",
                "description": "As its own schema has them.",
                "default": {},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string"},
                "execution_id": {"type": "string"},
                "output": {},
            },
            "required": ["tool_name", "execution_id", "output"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT24H", "allow_side_effects": True},
        "group": ["composition"],
        "delivery": "idempotent",
        "capabilities": ["call", "tool", "meta"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "find_tools",
        "type": "builtin",
        "title": "Find tools",
        "description": "Find the tools for a task among those you may use; call_tool calls one.",
        "category": "System",
        "parameters": [
            {
                "name": "query",
                "type": "String",
                "description": "What is to be done, in words.",
                "default": "",
                "schema": {"maxLength": 1_000},
            },
            {
                "name": "capabilities",
                "type": "Array",
                "description": "Only tools that have all of these.",
                "default": [],
                "schema": {"items": {"type": "string"}, "maxItems": 20},
            },
            {
                "name": "limit",
                "type": "Integer",
                "description": "The most tools to return.",
                "default": 5,
                "schema": {"minimum": 1, "maximum": 25},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "tools": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "title": {"type": ["string", "null"]},
                            "description": {"type": "string"},
                            "capabilities": {"type": "array", "items": {"type": "string"}},
                            "parameters": {"type": "object"},
                            "requires_confirmation": {"type": "boolean"},
                            "cost": {"type": "string"},
                            "tokens": {"type": "integer"},
                        },
                        "required": ["name", "description", "parameters", "tokens"],
                    },
                },
                "total": {"type": "integer"},
                "tokens_of_all": {
                    "type": "integer",
                    "description": "What the definitions of all of them would cost, about.",
                },
            },
            "required": ["tools", "total", "tokens_of_all"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": False},
        "group": ["composition"],
        "delivery": "pure",
        "capabilities": ["find", "tool", "search", "meta"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "run_program",
        "type": "builtin",
        "title": "Run a program that calls tools",
        "description": (
            "Run a short Python program in which your tools are functions: read_file(path='x'),"
            " tools['a.b'](x=1), call_many([('name', {...}), ...]). Only what it prints, and the"
            " variable result, comes back. A failed call raises ToolError(code, message). It is run"
            " anew after each call, with the answers so far: it must do the same each time."
        ),
        "category": "CodeExecution",
        "parameters": [
            {
                "name": "source",
                "type": "String",
                "description": "The text of the program.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 100_000},
            },
            {
                "name": "inputs",
                "type": "Object",
                "description": "Values that the program finds as inputs.",
                "default": {},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "printed": {"type": "string"},
                "result": {"description": "What the program left in its variable result."},
                "calls": {"type": "integer", "description": "How many calls it made."},
            },
            "required": ["printed", "result", "calls"],
            "additionalProperties": False,
        },
        "constraints": {
            "max_execution_time": "PT24H",
            "allow_side_effects": True,
            "required_isolation": "Restricted",
        },
        "group": ["composition"],
        "delivery": "idempotent",
        "capabilities": ["code", "program", "python", "compose"],
        "metadata": {"riskLevel": "medium"},
    },
)
