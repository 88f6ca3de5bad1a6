"""Parameters of a tool, and the JSON Schema of its input: given, or derived from the parameters.

Some types have default parameters, with the names that TrustGraph's configurations use.
"""

from types import MappingProxyType
from typing import Any

from tools.definitions.fields import DefinitionFields
from tools.definitions.schemas import json_schemas
from tools.definitions.texts import names
from tools.definitions.vocabulary import (
    PASSING_TYPES,
    ArgumentValidation,
    ParameterType,
    ToolType,
)

PARAMETER_KEYS = ("name", "type", "description", "required", "default", "enum", "schema")
_JSON_TYPES = {kind: kind.lower() for kind in ParameterType}


def read_interface(fields: DefinitionFields) -> dict[str, Any]:
    parameters = _read_parameters(fields)
    mode = fields.choice("argument_validation", ArgumentValidation, _default_validation(fields))
    passing = mode == ArgumentValidation.OFF and _is_passing_type(fields)
    derived = parameters_schema(parameters, closed=not passing)
    given = fields.raw.get("input_schema")
    if given is not None and parameters and not _is_derived_schema(given, parameters):
        fields.wrong("input_schema", "give parameters or input_schema, not both")
    output_schema = fields.object("output_schema", {})
    _check_schema(fields, "output_schema", output_schema)
    if given is not None and not parameters:
        _check_input_schema(fields, given)
        derived = given
    elif all(parameter["name"] for parameter in parameters):
        _check_schema(fields, "input_schema", derived)
    return {
        "parameters": parameters,
        "input_schema": derived,
        "output_schema": output_schema,
        "argument_validation": mode,
    }


def _default_validation(fields: DefinitionFields) -> ArgumentValidation:
    """Ruling 13: arguments of definitions from before typed parameters are passed on unchanged."""
    raw = fields.raw
    if not _is_passing_type(fields) or raw.get("input_schema") is not None:
        return ArgumentValidation.ENFORCE
    parameters = raw.get("parameters")
    items = parameters if isinstance(parameters, list) else []
    said = any(
        item.get(key) is not None
        for item in items
        if isinstance(item, dict)
        for key in ("required", "schema", "enum")
    )
    return ArgumentValidation.ENFORCE if said else ArgumentValidation.OFF


def _is_passing_type(fields: DefinitionFields) -> bool:
    kind = fields.raw.get("type")
    return isinstance(kind, str) and kind in PASSING_TYPES


def _is_derived_schema(schema: Any, parameters: list[dict[str, Any]]) -> bool:
    """Whether the schema is the one derived from the parameters, in either mode."""
    return schema in (parameters_schema(parameters), parameters_schema(parameters, closed=False))


def parameters_schema(parameters: list[dict[str, Any]], *, closed: bool = True) -> dict[str, Any]:
    """The JSON Schema derived from a list of parameters; closed: other arguments are refused."""
    schema = {
        "type": "object",
        "properties": {item["name"]: _parameter_schema(item) for item in parameters},
        "required": [item["name"] for item in parameters if item["required"]],
    }
    return schema | {"additionalProperties": False} if closed else schema


def _parameter_schema(parameter: dict[str, Any]) -> dict[str, Any]:
    schema = dict(parameter["schema"] or {})
    schema.setdefault("type", _JSON_TYPES[parameter["type"]])
    schema["description"] = parameter["description"]
    for key in ("default", "enum"):
        if parameter[key] is not None:
            schema[key] = parameter[key]
    return schema


def _read_parameters(fields: DefinitionFields) -> list[dict[str, Any]]:
    value = fields.raw.get("parameters")
    if value is None or value == []:
        value = _default_parameters(fields.raw)
    if not isinstance(value, list) or len(value) > json_schemas.MAX_PROPERTIES:
        limit = json_schemas.MAX_PROPERTIES
        fields.wrong("parameters", f"must be a list of at most {limit} objects")
        return []
    read = [_read_parameter(fields, at, item) for at, item in enumerate(value)]
    seen: set[str] = set()
    for at, parameter in enumerate(read):
        if parameter["name"] in seen:
            fields.wrong(f"parameters[{at}].name", "is the name of an earlier parameter")
        seen.add(parameter["name"])
    return read


def _read_parameter(parent: DefinitionFields, at: int, raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        parent.wrong(f"parameters[{at}]", "must be an object")
        raw = {"name": f"p{at}", "description": "-", "type": ParameterType.STRING}
    fields = DefinitionFields(raw, parent.flaws, f"parameters[{at}].")
    fields.reject_unknown(PARAMETER_KEYS)
    name = fields.text("name", longest=64)
    if name and not names.PARAMETER_NAME.fullmatch(name):
        fields.wrong("name", "must begin with a letter; letters, digits, '_', '.' and '-' follow")
    parameter = {
        "name": name,
        "description": fields.text("description", longest=4_000),
        "type": fields.choice("type", ParameterType),
        "required": fields.boolean("required", False),
        "default": raw.get("default"),
        "enum": raw.get("enum"),
        "schema": raw.get("schema"),
    }
    _check_parameter(fields, parameter)
    return parameter


def _check_parameter(fields: DefinitionFields, parameter: dict[str, Any]) -> None:
    schema, enum = parameter["schema"], parameter["enum"]
    if schema is not None and not isinstance(schema, dict):
        fields.wrong("schema", "must be a JSON Schema object")
        parameter["schema"] = None
    if enum is not None and (not isinstance(enum, list) or not enum):
        fields.wrong("enum", "must be a list with at least one value")
        parameter["enum"] = None
    kind = _JSON_TYPES[ParameterType(parameter["type"])]
    if isinstance(schema, dict) and schema.get("type", kind) != kind:
        fields.wrong("schema", f"has another type than the parameter's, which is {kind}")
    if parameter["default"] is None:
        return
    try:
        schema = {**_parameter_schema(parameter), "default": None}
        flaws = json_schemas.compile_schema(schema).flaws(parameter["default"])
    except json_schemas.BadSchema as error:
        fields.wrong("schema", str(error))
        return
    if flaws:
        fields.wrong("default", f"does not fit the parameter: {flaws[0].message}")


def _check_input_schema(fields: DefinitionFields, schema: Any) -> None:
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        fields.wrong("input_schema", "must be a JSON Schema whose type is object")
        return
    if not isinstance(schema.get("properties", {}), dict):
        fields.wrong("input_schema", "its properties must be an object")
        return
    _check_schema(fields, "input_schema", schema)


def _check_schema(fields: DefinitionFields, name: str, schema: Any) -> None:
    try:
        json_schemas.check_schema(schema)
    except json_schemas.BadSchema as error:
        fields.wrong(name, str(error))


def _default_parameters(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """For a definition that gives neither parameters nor a schema."""
    if definition.get("input_schema") is not None:
        return []
    kind = definition.get("type")
    return next((list(_DEFAULT_PARAMETERS[one]) for one in _DEFAULT_PARAMETERS if one == kind), [])


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
_DEFAULT_PARAMETERS = MappingProxyType(
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
