"""Converts a chain document to a tool definition and back.

    name: fetch_and_tell
    description: Fetches a page and tells the team.
    parameters: [{name: url, type: String, description: Where., required: true}]
    steps: [...]

The keys beside `steps`, `output` and `on_cancel` are those of any tool's definition.
"""

from typing import Any

from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition

CHAIN_KEYS = ("steps", "output", "on_cancel")
_DERIVED_KEYS = ("type", "implementation", "delivery")


def chain_definition(written: Any) -> dict[str, Any]:
    """The input of `read_definition`, which reports other errors. Raises `InvalidDefinition`."""
    if not isinstance(written, dict):
        raise InvalidDefinition("A chain is an object with a name and steps.", errors=[])
    if written.get("type") not in (None, ToolType.CHAIN):
        flaw = {"field": "type", "message": f"of a chain is {ToolType.CHAIN}"}
        raise InvalidDefinition("This is no chain.", errors=[flaw])
    if "implementation" in written:  # as a tool's definition has it
        return {**written, "type": ToolType.CHAIN}
    chain = {key: written[key] for key in CHAIN_KEYS if key in written}
    rest = {key: value for key, value in written.items() if key not in (*CHAIN_KEYS, "warnings")}
    return {**rest, "type": ToolType.CHAIN, "implementation": {"chain": chain}}


def chain_document(definition: dict[str, Any]) -> dict[str, Any]:
    """The chain document of a definition, with the fields that the catalog adds."""
    chain = definition["implementation"]["chain"]
    rest = {key: value for key, value in definition.items() if key not in _DERIVED_KEYS}
    return rest | {key: chain[key] for key in CHAIN_KEYS if key in chain}


def chain_field(field: str) -> str:
    """The field of an error, as named in the chain document."""
    return field.removeprefix("implementation.chain.")
