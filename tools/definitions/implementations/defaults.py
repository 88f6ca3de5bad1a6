"""Default parameters of some tool types: the names TrustGraph's configurations use."""

from types import MappingProxyType
from typing import Any

from tools.definitions.vocabulary import ParameterType, ToolType


def _required_parameter(
    name: str, kind: ParameterType, description: str, **more: Any
) -> dict[str, Any]:
    return {"name": name, "type": kind, "description": description, "required": True, **more}


_TERM = {"type": "string", "minLength": 1, "maxLength": 2_000}
_OBJECT = {
    "anyOf": [
        {"type": ["string", "number", "boolean"]},
        {
            "type": "object",
            "properties": {
                "value": {"type": "string"},
                "language": {"type": "string", "maxLength": 35},
                "datatype": _TERM,
            },
            "required": ["value"],
            "additionalProperties": False,
        },
    ]
}
_TRIPLES = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1_000,
    "items": {
        "type": "object",
        "properties": {"subject": _TERM, "predicate": _TERM, "object": _OBJECT},
        "required": ["subject", "predicate", "object"],
        "additionalProperties": False,
    },
}
DEFAULT_PARAMETERS = MappingProxyType(
    {
        ToolType.TEXT_COMPLETION: [
            _required_parameter("question", ParameterType.STRING, "What to ask the model.")
        ],
        ToolType.KNOWLEDGE_QUERY: [
            _required_parameter(
                "question", ParameterType.STRING, "Words to look for in the knowledge."
            )
        ],
        ToolType.STRUCTURED_QUERY: [
            _required_parameter("question", ParameterType.STRING, "A SPARQL query: SELECT or ASK.")
        ],
        ToolType.GRAPH_UPDATE: [
            _required_parameter(
                "triples",
                ParameterType.ARRAY,
                "Statements to add, each with subject and predicate (IRIs) and object: an IRI in"
                " angle brackets, or a text, a number, a truth value, or an object with value and"
                " language or datatype.",
                schema=_TRIPLES,
            )
        ],
    }
)


def default_parameters(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """For a definition that gives neither parameters nor a schema."""
    if definition.get("input_schema") is not None:
        return []
    kind = definition.get("type")
    return next((list(DEFAULT_PARAMETERS[one]) for one in DEFAULT_PARAMETERS if one == kind), [])
