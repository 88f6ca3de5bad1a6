"""The built-in `validate_content`. Runs inside the sandbox, with two libraries beside the standard
one: a schema and a document from outside may be made to hang, and here they hang alone.
"""

import json
from typing import Any

import jsonschema_rs
import yaml
from toolcrib import ToolError

MOST_ERRORS = 100
MOST_ALIASES = 100
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


class Unreadable(Exception):
    """The content is not what its format says; the message says where."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def main(parameters: dict[str, Any]) -> dict[str, object]:
    """Whether the content fits the schema, and every place where it does not."""
    validator = _validator(_schema(parameters))
    try:
        document = _document(parameters["content"], parameters["format"])
    except Unreadable as problem:
        flaw = {"path": "/", "line": problem.line, "message": problem.message}
        return {"valid": False, "errors": [flaw], "error_count": 1}
    errors = [_flaw(error) for error in validator.iter_errors(document)]
    return {"valid": not errors, "errors": errors[:MOST_ERRORS], "error_count": len(errors)}


def _schema(parameters: dict[str, Any]) -> Any:
    given, name = parameters.get("schema"), parameters.get("schema_name")
    if (given is None) == (name is None):
        raise ToolError("SCHEMA_MISSING", "Give either schema or schema_name.")
    if name is None:
        return given
    if name not in SCHEMAS:
        known = ", ".join(sorted(SCHEMAS))
        raise ToolError("SCHEMA_UNKNOWN", f"There is no schema of that name, only: {known}.")
    return SCHEMAS[name]


def _validator(schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(
            schema,
            offline=True,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise ToolError("SCHEMA_INVALID", str(error).splitlines()[0][:400]) from None


def _document(content: str, form: str) -> Any:
    try:
        return json.loads(content) if form == "json" else _yaml(content)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg}, column {error.colno}", error.lineno) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else None
        raise Unreadable(f"not YAML: {error.problem or error.context}", line) from None
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise Unreadable(f"not {form}: {type(error).__name__}", None) from None


def _yaml(content: str) -> Any:
    """Plain data only. Aliases are counted: a few lines of them can stand for gigabytes."""
    aliases = sum(
        isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, yaml.SafeLoader)
    )
    if aliases > MOST_ALIASES:
        raise Unreadable(f"more than {MOST_ALIASES} aliases", None)
    return json.loads(json.dumps(yaml.safe_load(content), default=str))


def _flaw(error: Any) -> dict[str, object]:
    return {
        "path": "/" + "/".join(str(step) for step in error.instance_path),
        "schema_path": "/" + "/".join(str(step) for step in error.schema_path),
        "message": error.message[:500],
    }
