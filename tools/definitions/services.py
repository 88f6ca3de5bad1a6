"""Parses the descriptor of a tool service (specification S2): its queues, and configuration
parameters of its tools; and its announcement, as untrusted input: size, signature, depth, every
field.

Queue names are kept to the letter, as names (ruling 12).
"""

import base64
import re
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from toolcrib_service.service import MOST_CHARACTERS, announcement_digest, signed_bytes
from tools.definitions.descriptors import FLAT_KEYS, Flaws, canonical_key
from tools.definitions.dialects.import_references import KnownReferences, resolve_references
from tools.definitions.fields import DefinitionFields
from tools.definitions.texts import names
from tools.definitions.tool import (
    CATALOG_KEYS,
    DEFINITION_KEYS,
    OPTIONAL_KEYS,
    Definition,
    read_definition,
)
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition

MOST_PARAMETERS = 50
# Keys of a tool's descriptor: a parameter of that name would be ambiguous (ruling 14).
RESERVED_KEYS = frozenset(
    {
        *DEFINITION_KEYS, *OPTIONAL_KEYS, *CATALOG_KEYS, *FLAT_KEYS[ToolType.SERVICE],
        "arguments", "applicable_states", "groups", "id", "states",
    }
)  # fmt: skip
_ACCESS_KEY = re.compile(
    r"(?i)(tool|allowed|applicable|available)?[_.-]*(in)?[_.-]*(group|state)s?"
)
_KEYS = ("id", "request_queue", "response_queue", "config_params", "default_groups")

Descriptor = dict[str, Any]
MOST_TOOLS = 50
MOST_GROUPS = 100


def read_service(raw: Any) -> Descriptor:
    """The columns of a service: `id`, `request_queue`, `response_queue`, `config_params` and
    `default_groups`. Raises `InvalidDefinition`."""
    fields = _read_fields(raw)
    fields.reject_unknown(_KEYS)
    said = {
        "id": _read_id(fields),
        "request_queue": fields.text("request_queue", longest=500),
        "response_queue": fields.text("response_queue", longest=500),
        "config_params": _read_parameters(fields),
        "default_groups": fields.texts("default_groups", None, flaw_of=names.flaw_in_group),
    }
    if fields.flaws:
        raise InvalidDefinition(
            "The tool service was not accepted: see details.errors.", errors=fields.flaws
        )
    return said


def is_reserved_key(key: str) -> bool:
    """Whether a key is one of a definition's own, or looks like one that grants access (ruling
    14)."""
    return canonical_key(key) in RESERVED_KEYS or bool(_ACCESS_KEY.fullmatch(key))


def service_document(descriptor: Descriptor) -> dict[str, Any]:
    """As specification S2 writes it."""
    return {
        key.replace("_", "-"): descriptor[key] for key in _KEYS if descriptor.get(key) is not None
    }


def config_flaws(params: list[dict[str, Any]], config: dict[str, Any]) -> list[dict[str, str]]:
    """Missing and undeclared values of a tool for its service's parameters."""
    declared = {one["name"]: one["required"] for one in params}
    field = "implementation.config."
    missing = [name for name, required in declared.items() if required and name not in config]
    beyond = sorted(set(config) - set(declared))
    return [
        *({"field": field + name, "message": "is required by the service"} for name in missing),
        *({"field": field + name[:60], "message": "is not a parameter of the service"}
          for name in beyond),
    ]  # fmt: skip


def _read_fields(raw: Any) -> DefinitionFields:
    if not isinstance(raw, dict):
        raise InvalidDefinition("A tool service is a JSON object.", errors=[])
    try:
        strict_json.check(raw)
    except strict_json.BadJson as error:
        raise InvalidDefinition(f"The tool service cannot be used: {error}.", errors=[]) from None
    flaws: Flaws = []
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = canonical_key(str(key))
        if name in found:
            flaws.append({"field": name[:60], "message": "stands twice, in two spellings"})
        found[name] = value
    return DefinitionFields(found, flaws)


def _read_id(fields: DefinitionFields) -> str:
    name = fields.text("id", longest=128)
    if name and not names.TOOL_NAME.fullmatch(name):
        fields.wrong("id", "may hold only letters, digits, '_', '.' and '-', at most 128")
    if names.is_reserved_address("service", name):
        fields.wrong("id", "is reserved; choose another")
    return name


def _read_parameters(parent: DefinitionFields) -> list[dict[str, Any]]:
    value = parent.raw.get("config_params")
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_PARAMETERS:
        parent.wrong("config_params", f"must be a list of at most {MOST_PARAMETERS} objects")
        return []
    read = [_read_parameter(parent, at, one) for at, one in enumerate(value)]
    for at, one in enumerate(read):
        if one["name"] and one["name"] in {earlier["name"] for earlier in read[:at]}:
            parent.wrong(f"config_params[{at}].name", "is the name of an earlier parameter")
    return read


def _read_parameter(parent: DefinitionFields, at: int, raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        parent.wrong(f"config_params[{at}]", "must be an object")
        return {"name": "", "required": False}
    fields = DefinitionFields(raw, parent.flaws, f"config_params[{at}].")
    fields.reject_unknown(("name", "required"))
    name = fields.text("name", longest=64)
    if name and not names.PARAMETER_NAME.fullmatch(name):
        fields.wrong("name", "must begin with a letter; letters, digits, '_', '.' and '-' follow")
    elif canonical_key(name) in RESERVED_KEYS:
        fields.wrong("name", "is reserved: descriptors of tools have a key of that name")
    return {"name": name, "required": fields.boolean("required", False)}


@dataclass(frozen=True, slots=True)
class Announcement:
    """`tools` are canonical definitions: each is in the groups that the signature covers."""

    service: Descriptor
    tools: tuple[Definition, ...]
    document: str
    digest: str

    @property
    def name(self) -> str:
        return str(self.service["id"])


def has_valid_signature(document: str, key: str, signature: str) -> bool:
    """Whether the key signed exactly these bytes."""
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        public.verify(base64.b64decode(signature, validate=True), signed_bytes(document))
    except (InvalidSignature, ValueError):
        return False
    return True


def read_announcement(document: str, *, organization: str) -> Announcement:
    """Raises `InvalidDefinition`."""
    if len(document) > MOST_CHARACTERS:
        raise _rejection(f"it is longer than {MOST_CHARACTERS} characters")
    try:
        said = strict_json.parse(document)
    except strict_json.BadJson as error:
        raise _rejection(str(error)) from None
    if not isinstance(said, dict) or set(said) != {"organization", "service", "groups", "tools"}:
        raise _rejection("it names its organization, service, groups and tools")
    if said["organization"] != organization:
        raise _rejection("it is meant for another organization")
    service = read_service(said["service"])
    service["default_groups"] = _parse_groups(said["groups"])
    return Announcement(
        service, _parse_tools(said["tools"], service), document, announcement_digest(document)
    )


def _parse_groups(value: Any) -> list[str] | None:
    if value is None:
        return None
    good = isinstance(value, list) and len(value) <= MOST_GROUPS
    if not good or any(not isinstance(one, str) or names.flaw_in_group(one) for one in value):
        raise _rejection("its groups are a list of names, or null")
    return list(value)


def _parse_tools(value: Any, service: Descriptor) -> tuple[Definition, ...]:
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise _rejection(f"its tools are a list of at most {MOST_TOOLS}")
    tools = tuple(_parse_tool(one, service) for one in value)
    if len({one["name"].lower() for one in tools}) != len(tools):
        raise _rejection("two of its tools have one name")
    return tools


def _parse_tool(raw: Any, service: Descriptor) -> Definition:
    """In its own groups or those of the announcement, written out, so that they cannot be widened
    later."""
    if not isinstance(raw, dict):
        raise _rejection("each of its tools is an object")
    known = KnownReferences(services={service["id"]: service["config_params"]})
    raw, flaws = resolve_references(raw, known)
    if flaws:
        raise InvalidDefinition("A tool of the announcement is wrong.", errors=flaws)
    definition = read_definition(raw)
    if definition["type"] != ToolType.SERVICE:
        raise _rejection("its tools are of the type tool-service")
    implementation = definition["implementation"]
    if implementation["service"] != service["id"]:
        raise _rejection("its tools are its own")
    if flaws := config_flaws(service["config_params"], implementation["config"]):
        raise InvalidDefinition("A tool of the announcement is wrong.", errors=flaws)
    if definition["group"] is None:
        definition["group"] = service["default_groups"]
    return definition


def _rejection(why: str) -> InvalidDefinition:
    return InvalidDefinition(f"The announcement was not accepted: {why}.", errors=[])
