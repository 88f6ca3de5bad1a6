"""The schemas that `validate_content` offers by name."""

from typing import Any

SCHEMAS: dict[str, Any] = {
    "json-schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    "tool-parameters": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name", "description", "type"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "description": {"type": "string", "minLength": 1},
                "type": {"enum": ["String", "Integer", "Number", "Boolean", "Array", "Object"]},
                "required": {"type": "boolean"},
                "enum": {"type": "array", "minItems": 1},
                "schema": {"type": "object"},
            },
        },
    },
}
