"""Tool services and their tools as specification S2 writes them: two descriptors.

`read_service` names every wrong field. Queue names are kept to the letter, as names: where messages
really pass is our own affair (ruling 12).
"""

from typing import Any

from tools.definitions import names, strict_json
from tools.definitions.descriptors import canonical_key
from tools.definitions.fields import Fields
from tools.definitions.tool import OPTIONAL, SHOWN, WRITTEN
from tools.definitions.vocabulary import ArgumentValidation, ParameterType, ToolType
from tools.errors import InvalidDefinition

MOST_PARAMETERS = 50
_OWN = frozenset({"service", "arguments", "config", "id", "schema", "applicable_states"})
_TOOL_KEYS = frozenset({*WRITTEN, *OPTIONAL, *SHOWN, *_OWN})
# Keys of a tool's descriptor: a parameter of that name could not be told from them (ruling 14).
RESERVED = frozenset({"states", "groups"}) | _TOOL_KEYS
_KEYS = ("id", "request_queue", "response_queue", "config_params", "default_groups")
_TYPES = {kind.lower(): kind for kind in ParameterType}

Descriptor = dict[str, Any]


def read_service(raw: Any) -> Descriptor:
    """The columns of a service: `id`, `request_queue`, `response_queue`, `config_params` and
    `default_groups`. Raises `InvalidDefinition`."""
    fields = _fields(raw)
    fields.known(_KEYS)
    said = {
        "id": _id(fields),
        "request_queue": _queue(fields, "request_queue"),
        "response_queue": _queue(fields, "response_queue"),
        "config_params": _parameters(fields),
        "default_groups": fields.texts("default_groups", None, flaw_of=names.flaw_in_group),
    }
    if fields.flaws:
        raise InvalidDefinition(
            "The tool service was not accepted: see details.errors.", errors=fields.flaws
        )
    return said


def tool_of_descriptor(raw: Any) -> dict[str, Any]:
    """A definition from a tool's descriptor, in which the service's parameters are flat keys.

    What is no key of a descriptor is a parameter; whether the service takes it, the catalog says.
    Raises `InvalidDefinition` for what is no object; the rest `read_definition` reads.
    """
    if not isinstance(raw, dict):
        raise InvalidDefinition("A tool's descriptor is a JSON object.", errors=[])
    if raw.get("type") != ToolType.SERVICE or "implementation" in raw:
        return raw
    definition: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for key, value in raw.items():
        known = canonical_key(str(key)) in _TOOL_KEYS
        (definition if known else config)[key] = value
    service, arguments = definition.pop("service", None), definition.pop("arguments", None)
    if isinstance(arguments, list):
        definition["parameters"] = [_argument(one) for one in arguments]
        if not any(isinstance(one, dict) and _checked(one) for one in arguments):
            definition.setdefault("argument_validation", ArgumentValidation.OFF)  # ruling 13
    elif arguments is not None:
        definition["parameters"] = arguments
    definition["implementation"] = {"service": service, "config": config}
    return definition


def flaws_in_config(params: list[dict[str, Any]], config: dict[str, Any]) -> list[dict[str, str]]:
    """What a tool's values for its service's parameters lack, or have beyond them."""
    declared = {one["name"]: one["required"] for one in params}
    field = "implementation.config."
    missing = [name for name, required in declared.items() if required and name not in config]
    beyond = sorted(set(config) - set(declared))
    return [
        *({"field": field + name, "message": "is required by the service"} for name in missing),
        *({"field": field + name[:60], "message": "is not a parameter of the service"}
          for name in beyond),
    ]  # fmt: skip


def _fields(raw: Any) -> Fields:
    if not isinstance(raw, dict):
        raise InvalidDefinition("A tool service is a JSON object.", errors=[])
    try:
        strict_json.check(raw)
    except strict_json.BadJson as error:
        message = f"The tool service cannot be used: {error}."
        raise InvalidDefinition(message, errors=[]) from None
    flaws: list[dict[str, str]] = []
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = canonical_key(str(key))
        if name in found:
            flaws.append({"field": name[:60], "message": "stands twice, in two spellings"})
        found[name] = value
    return Fields(found, flaws)


def _id(fields: Fields) -> str:
    name = fields.text("id", longest=128)
    if name and (not names.TOOL_NAME.fullmatch(name) or name in {".", ".."}):
        fields.wrong("id", "may hold only letters, digits, '_', '.' and '-', at most 128")
    return name


def _queue(fields: Fields, name: str) -> str:
    return fields.text(name, longest=500)


def _parameters(parent: Fields) -> list[dict[str, Any]]:
    value = parent.raw.get("config_params")
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_PARAMETERS:
        parent.wrong("config_params", f"must be a list of at most {MOST_PARAMETERS} objects")
        return []
    read = [_parameter(parent, at, one) for at, one in enumerate(value)]
    for at, one in enumerate(read):
        if one["name"] and one["name"] in {earlier["name"] for earlier in read[:at]}:
            parent.wrong(f"config_params[{at}].name", "is the name of an earlier parameter")
    return read


def _parameter(parent: Fields, at: int, raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        parent.wrong(f"config_params[{at}]", "must be an object")
        return {"name": "", "required": False}
    fields = Fields(raw, parent.flaws, f"config_params[{at}].")
    fields.known(("name", "required"))
    name = fields.text("name", longest=64)
    if name and not names.PARAMETER_NAME.fullmatch(name):
        fields.wrong("name", "must begin with a letter; letters, digits, '_', '.' and '-' follow")
    elif canonical_key(name) in RESERVED:
        fields.wrong("name", "is reserved: descriptors of tools have a key of that name")
    return {"name": name, "required": fields.boolean("required", False)}


def _argument(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    kind = raw.get("type")
    known = _TYPES.get(kind.lower()) if isinstance(kind, str) else None
    return raw | ({"type": known} if known else {})


def _checked(argument: dict[str, Any]) -> bool:
    return any(argument.get(key) is not None for key in ("required", "schema", "enum"))
