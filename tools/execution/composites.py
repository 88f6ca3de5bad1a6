"""Which kinds of composite calls there are."""

from tools.definitions.tool import ToolDefinition
from tools.execution.composition import Kind

KINDS: dict[str, Kind] = {}


def add(name: str, kind: Kind) -> None:
    """The package of each kind adds it when the product starts."""
    KINDS[name] = kind


def kind_of(definition: ToolDefinition) -> Kind:
    """How a composite call of this definition takes its turns."""
    return KINDS[definition.entry_point or definition.type]
