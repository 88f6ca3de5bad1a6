"""The JSON Schema of table schemas. It is read inside and outside the sandbox, so it imports
nothing."""

from typing import Any

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["fields"],
    "properties": {
        "fields": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1000,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "title": {"type": "string"},
                    "description": {"type": "string"},
                    "type": {
                        "enum": [
                            *("string", "integer", "number", "boolean", "date", "datetime"),
                            *("time", "year", "any"),
                        ]
                    },
                    "constraints": {
                        "type": "object",
                        "properties": {
                            "required": {"type": "boolean"},
                            "unique": {"type": "boolean"},
                            "enum": {"type": "array", "minItems": 1},
                            "pattern": {"type": "string", "maxLength": 1000},
                            "minimum": {"type": ["number", "string"]},
                            "maximum": {"type": ["number", "string"]},
                            "minLength": {"type": "integer", "minimum": 0},
                            "maxLength": {"type": "integer", "minimum": 0},
                        },
                        "additionalProperties": False,
                    },
                },
                "additionalProperties": False,
            },
        },
        "primaryKey": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "minItems": 1, "items": {"type": "string"}},
            ]
        },
        "missingValues": {"type": "array", "items": {"type": "string"}},
        "delimiter": {"enum": [",", ";", "\t", "|"]},
        "additionalFields": {"type": "boolean"},
    },
    "additionalProperties": False,
}
