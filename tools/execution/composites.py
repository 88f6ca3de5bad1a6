"""Which kinds of composite calls there are."""

from tools.definitions.implementations.builtin import CALL_TOOL, FIND_TOOLS, RUN_BATCH, RUN_PROGRAM
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.execution import batch, calling, chains, programs, tool_finding
from tools.execution.composition import Kind

KINDS: dict[str, Kind] = {
    RUN_BATCH: Kind(batch.turn),
    CALL_TOOL: Kind(calling.turn),
    FIND_TOOLS: Kind(tool_finding.turn),
    RUN_PROGRAM: Kind(programs.turn),
    ToolType.CHAIN: Kind(chains.turn, sees_its_end=True),
}


def add(name: str, kind: Kind) -> None:
    """One that lives above the road: its room says so when the product starts."""
    KINDS[name] = kind


def kind_of(definition: ToolDefinition) -> Kind:
    """How a composite call of this definition takes its turns."""
    return KINDS[definition.entry_point or definition.type]
