"""Parses a tool definition into its canonical form (specification S3, 2.2).

`read_definition` names every wrong field. What it returns is complete, has its defaults filled in,
and means the same wherever it is read; its digest identifies it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from audit.canonical import commitment
from sandbox.spec import Language
from tools.definitions import descriptors, transforms
from tools.definitions.chains.chain_document import Chain
from tools.definitions.fields import DefinitionFields
from tools.definitions.implementations.tool_types import COMPOSITES, read_implementation
from tools.definitions.texts import names
from tools.definitions.tool_parameters import PARAMETER_KEYS, read_interface
from tools.definitions.transforms import Transform
from tools.definitions.values import durations, strict_json
from tools.definitions.vocabulary import (
    PASSING_TYPES,
    ArgumentValidation,
    Category,
    Delivery,
    Isolation,
    ToolType,
)
from tools.errors import InvalidDefinition

DEFAULT_GROUP = "default"
MAX_EXECUTION_S = 3_600
MAX_COMPOSITE_S = 7 * 86_400  # blocks no worker, and may wait for approvals
MAX_OUTPUT_BYTES = 100 * 1024 * 1024
MAX_DEFINITION = 1024 * 1024
_TOKEN_PIECES = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

# Keys that the catalog adds when a definition is shown; accepted and ignored when it is sent back.
CATALOG_KEYS = frozenset(
    {
        "enabled", "status", "status_reason", "digest", "signature", "version", "origin",
        "critical", "effective_isolation", "findings", "max_concurrency", "on_drift", "change_note",
        "authentic", "token_estimate",
    }
)  # fmt: skip
# In the order in which a definition is shown.
DEFINITION_KEYS = (
    "name", "type", "title", "description", "category", "parameters", "input_schema",
    "output_schema", "constraints", "required_permissions", "requires_confirmation", "group",
    "state", "available_in_states", "rate_limit_per_minute", "cost_per_invocation", "cache_ttl",
    "delivery", "argument_validation", "capabilities", "implementation", "metadata",
)  # fmt: skip
# Written only where it is given: definitions without one keep their digest.
OPTIONAL_KEYS = ("cost_per_cache_hit", "transform")
# Types whose calls may be repeated safely; any other tool is called at most once by default.
_IDEMPOTENT = (
    ToolType.PROMPT,
    ToolType.TEXT_COMPLETION,
    ToolType.KNOWLEDGE_QUERY,
    ToolType.STRUCTURED_QUERY,
    ToolType.GRAPH_UPDATE,
    ToolType.CHAIN,
)

Definition = dict[str, Any]


def read_definition(raw: Any) -> Definition:
    """The canonical form of a definition in any dialect. Raises `InvalidDefinition`."""
    if not isinstance(raw, dict):
        raise InvalidDefinition("A definition is a JSON object.", errors=[])
    flaws: list[dict[str, str]] = []
    _check_size(raw)
    fields = DefinitionFields(descriptors.canonical_keys(raw, flaws), flaws)
    fields.reject_unknown({*DEFINITION_KEYS, *OPTIONAL_KEYS, *CATALOG_KEYS})
    definition = {
        **_read_identity(fields),
        **read_interface(fields),
        "constraints": _read_constraints(fields),
        **_read_availability(fields),
        **_read_economy(fields),
        **_read_transform(fields),
        "implementation": read_implementation(fields),
        "metadata": fields.object("metadata", {}),
    }
    _check_catalog_keys(fields)
    _check_combinations(fields, definition)
    if flaws:
        count = len(flaws)
        summary = f"{count} field{'s are' if count > 1 else ' is'} wrong; see details.errors."
        raise InvalidDefinition(
            f"The definition was not accepted: {summary}",
            errors=descriptors.restore_written_keys(flaws, raw),
        )
    return definition


def definition_digest(definition: Definition) -> str:
    """`sha256:` and the hash of the canonical JSON (RFC 8785) of a canonical definition."""
    return "sha256:" + commitment(definition)


def passes_arguments(definition: Definition) -> bool:
    """Whether arguments are passed on unchanged, regardless of the declaration."""
    off = definition["argument_validation"] == ArgumentValidation.OFF
    return off and definition["type"] in PASSING_TYPES


def ordered_definition(definition: Definition) -> Definition:
    """The same definition with its keys where a reader expects them; the database does not keep
    it."""
    shown = {key: definition[key] for key in DEFINITION_KEYS}
    shown |= {key: definition[key] for key in OPTIONAL_KEYS if key in definition}
    shown["parameters"] = [
        {key: parameter[key] for key in PARAMETER_KEYS} for parameter in definition["parameters"]
    ]
    return shown


def ordered_if_valid(definition: Any) -> Any:
    """The same for an invalid definition that a person has to see."""
    try:
        return ordered_definition(definition)
    except (KeyError, TypeError):
        return definition


@dataclass(frozen=True)
class ToolDefinition:
    """A canonical definition as the execution pipeline reads it."""

    raw: Definition

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @property
    def type(self) -> ToolType:
        return ToolType(self.raw["type"])

    @cached_property
    def digest(self) -> str:
        """The digest of the definition itself, not the stored one."""
        return definition_digest(self.raw)

    @cached_property
    def cost(self) -> Decimal:
        return Decimal(self.raw["cost_per_invocation"])

    @cached_property
    def cost_per_hit(self) -> Decimal:
        """What an answer from the cache costs (ruling 17)."""
        return Decimal(self.raw.get("cost_per_cache_hit", "0"))

    @cached_property
    def groups(self) -> frozenset[str]:
        """Absent is `default`; an empty list is reachable only through `*` (ruling 2)."""
        group = self.raw["group"]
        return frozenset([DEFAULT_GROUP] if group is None else group)

    @cached_property
    def states(self) -> frozenset[str]:
        """Absent is every state; an empty list is never."""
        states = self.raw["available_in_states"]
        return frozenset([names.WILDCARD] if states is None else states)

    @cached_property
    def cache_ttl_s(self) -> float | None:
        """How long a result may be given again; only pure tools declare it."""
        ttl = self.raw["cache_ttl"]
        return durations.parse_duration(ttl) if ttl else None

    @property
    def timeout_s(self) -> float:
        return durations.parse_duration(self.raw["constraints"]["max_execution_time"])

    @property
    def max_output_bytes(self) -> int:
        return int(self.raw["constraints"]["max_output_size"])

    @property
    def isolation(self) -> Isolation:
        return Isolation(self.raw["constraints"]["required_isolation"])

    @cached_property
    def sandbox_profile(self) -> str | None:
        return self.raw["constraints"].get("sandbox_profile")

    @property
    def language(self) -> Language:
        """The language of a `code` tool; built-in ones are Python."""
        return Language(self.raw["implementation"].get("language", Language.PYTHON))

    @property
    def credential(self) -> str | None:
        """The credential of an `http` tool, which its host's entry in the list of hosts must
        name."""
        return self.raw["implementation"].get("credential") if self.type == ToolType.HTTP else None

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The default values of parameters."""
        properties = self.raw["input_schema"].get("properties", {})
        return {
            name: schema["default"]
            for name, schema in properties.items()
            if isinstance(schema, dict) and "default" in schema
        }

    @property
    def entry_point(self) -> str | None:
        """The function of the product that a built-in names."""
        if self.type != ToolType.BUILTIN:
            return None
        return str(self.raw["implementation"]["entry_point"])

    @property
    def composite(self) -> bool:
        """Whether it makes calls of its own."""
        return self.type == ToolType.CHAIN or self.entry_point in COMPOSITES

    @cached_property
    def chain(self) -> Chain:
        """The chain of a tool of the type `chain`."""
        return Chain(self.raw["implementation"]["chain"])

    @cached_property
    def transform(self) -> Transform:
        return Transform.from_definition(self.raw.get("transform", {}))

    @cached_property
    def token_price(self) -> int:
        """The estimated tokens in a model's context."""
        return definition_tokens(self.raw)

    @cached_property
    def sensitive(self) -> frozenset[str]:
        """Names of members whose schema says `"x-sensitive": true`: the audit log stores none of
        them."""
        return frozenset(_sensitive_members([self.raw["input_schema"], self.raw["output_schema"]]))


def estimate_tokens(text: str) -> int:
    return sum(1 for _ in _TOKEN_PIECES.finditer(text))


def definition_tokens(definition: dict[str, Any]) -> int:
    """Tokens of a canonical definition as tool lists of models have it."""
    shown = {
        "name": definition["name"],
        "description": definition["description"],
        "input_schema": definition["input_schema"],
    }
    return estimate_tokens(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))


def _sensitive_members(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _sensitive_members(item)
    if isinstance(part, dict):
        properties = part.get("properties")
        for name, schema in properties.items() if isinstance(properties, dict) else ():
            if isinstance(schema, dict) and schema.get("x-sensitive") is True:
                yield name
        for item in part.values():
            yield from _sensitive_members(item)


def _read_identity(fields: DefinitionFields) -> Definition:
    name = fields.text("name", longest=128)
    if name and not names.TOOL_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-', at most 128")
    kind = fields.choice("type", ToolType)
    if names.is_reserved_address("chain" if kind == ToolType.CHAIN else "tool", name):
        fields.wrong("name", "is reserved; choose another")
    return {
        "name": name,
        "type": kind,
        "title": fields.text("title", "") or None,
        "description": fields.text("description", longest=10_000),
        "category": fields.choice("category", Category, Category.SYSTEM),
    }


def _max_execution_s(fields: DefinitionFields) -> int:
    raw = fields.raw
    if raw.get("type") == ToolType.CHAIN:
        return MAX_COMPOSITE_S
    made_of = raw.get("implementation")
    entry_point = made_of.get("entry_point") if isinstance(made_of, dict) else None
    composite = raw.get("type") == ToolType.BUILTIN and (
        raw.get("name") if entry_point is None else entry_point
    )
    return MAX_COMPOSITE_S if composite in COMPOSITES else MAX_EXECUTION_S


def _default_time(longest_s: float) -> str:
    """A composite tool waits for its calls, and for their approvals."""
    return "P1D" if longest_s == MAX_COMPOSITE_S else "PT30S"


def _read_constraints(parent: DefinitionFields) -> Definition:
    fields = DefinitionFields(parent.object("constraints", {}), parent.flaws, "constraints.")
    fields.reject_unknown(
        (
            "max_execution_time", "max_output_size", "allow_side_effects", "required_isolation",
            "sandbox_profile",
        )
    )  # fmt: skip
    longest_s = _max_execution_s(parent)
    constraints = {
        "max_execution_time": fields.duration(
            "max_execution_time", _default_time(longest_s), longest_s=longest_s
        ),
        "max_output_size": fields.integer(
            "max_output_size", 10 * 1024 * 1024, least=1, most=MAX_OUTPUT_BYTES
        ),
        "allow_side_effects": fields.boolean(
            "allow_side_effects", parent.raw.get("delivery") != Delivery.PURE
        ),
        "required_isolation": fields.choice("required_isolation", Isolation, Isolation.STANDARD),
    }
    if fields.has_value("sandbox_profile"):  # without a key, old definitions keep their digest
        constraints["sandbox_profile"] = _read_profile_name(fields)
    return constraints


def _read_profile_name(fields: DefinitionFields) -> str:
    """The catalog checks that the profile exists."""
    name = fields.text("sandbox_profile", longest=63)
    if name and not PROFILE_NAME.fullmatch(name):
        fields.wrong("sandbox_profile", "may hold only letters, digits, '_', '.' and '-'")
    return name


def _read_availability(fields: DefinitionFields) -> Definition:
    state = fields.raw.get("state")
    if state is not None and (not isinstance(state, str) or names.flaw_in_group(state)):
        fields.wrong("state", "must be the name of a state: a text of 1 to 100 characters")
    return {
        "required_permissions": fields.texts(
            "required_permissions", [], flaw_of=names.flaw_in_group
        ),
        "requires_confirmation": fields.boolean("requires_confirmation", False),
        "group": fields.texts("group", None, flaw_of=names.flaw_in_group),
        "state": state,
        "available_in_states": fields.texts(
            "available_in_states", None, flaw_of=names.flaw_in_group
        ),
    }


def _read_economy(fields: DefinitionFields) -> Definition:
    hit = "cost_per_cache_hit"
    optional = {hit: fields.money(hit)} if fields.has_value(hit) else {}
    return optional | {
        "rate_limit_per_minute": fields.integer(
            "rate_limit_per_minute", None, least=1, most=1_000_000
        ),
        "cost_per_invocation": fields.money("cost_per_invocation"),
        "cache_ttl": fields.duration("cache_ttl", None, longest_s=30 * 86_400),
        "delivery": fields.choice("delivery", Delivery, _default_delivery(fields)),
        "capabilities": fields.texts("capabilities", [], flaw_of=names.flaw_in_group),
    }


def _read_transform(fields: DefinitionFields) -> Definition:
    read = transforms.read_transform(fields)
    return {"transform": read} if read else {}


def _default_delivery(fields: DefinitionFields) -> Delivery:
    return Delivery.IDEMPOTENT if fields.raw.get("type") in _IDEMPOTENT else Delivery.EXTERNAL


def _check_combinations(fields: DefinitionFields, definition: Definition) -> None:
    """Checks that need several fields."""
    pure = definition["delivery"] == Delivery.PURE
    if pure and definition["constraints"]["allow_side_effects"]:
        fields.wrong("delivery", "pure needs constraints.allow_side_effects to be false")
    if definition["delivery"] == Delivery.TRANSACTIONAL:
        fields.wrong(
            "delivery",
            "transactional is not there yet: choose idempotent if it may be repeated, or external",
        )
    isolation = definition["constraints"]["required_isolation"]
    if definition["type"] != ToolType.BUILTIN and isolation == Isolation.NONE:
        fields.wrong("constraints.required_isolation", "only a built-in tool may run outside")
    if definition["cache_ttl"] and not pure:
        fields.wrong("cache_ttl", "only a tool whose delivery is pure may be cached")


def _check_catalog_keys(fields: DefinitionFields) -> None:
    """The keys beside the definition: two switches, and its version's label."""
    fields.boolean("enabled", True)
    fields.boolean("critical", False)
    fields.text("change_note", "", longest=1000)
    label = fields.raw.get("version")
    if label is not None and not (isinstance(label, str) and names.VERSION.fullmatch(label)):
        fields.wrong(
            "version", "must be a label such as 1.0.0, of at most 32 letters, digits, '._+-'"
        )


def _check_size(raw: Definition) -> None:
    """Rejects values that JSON cannot represent, and too many of them, before anything is
    parsed."""
    try:
        strict_json.check(raw)
        too_large = len(json.dumps(raw, ensure_ascii=False)) > MAX_DEFINITION
    except (strict_json.BadJson, TypeError) as error:
        raise InvalidDefinition(f"The definition cannot be used: {error}.", errors=[]) from None
    if too_large:
        raise InvalidDefinition(
            f"The definition is larger than {MAX_DEFINITION} characters.", errors=[]
        )
