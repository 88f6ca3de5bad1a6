"""Parses the announcement of a tool service as untrusted input: size, signature, depth, every
field."""

import base64
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from toolcrib_service.service import MOST, digest_of, statement
from tools.definitions.dialects.settling import KnownReferences, resolve_references
from tools.definitions.services import (
    Descriptor,
    config_flaws,
    read_service,
)
from tools.definitions.texts import names
from tools.definitions.tool import Definition, read_definition
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition

MOST_TOOLS = 50
MOST_GROUPS = 100


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
        public.verify(base64.b64decode(signature, validate=True), statement(document))
    except (InvalidSignature, ValueError):
        return False
    return True


def read_announcement(document: str, *, organization: str) -> Announcement:
    """Raises `InvalidDefinition`."""
    if len(document) > MOST:
        raise _rejection(f"it is longer than {MOST} characters")
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
        service, _parse_tools(said["tools"], service), document, digest_of(document)
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
