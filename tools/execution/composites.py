"""Which kinds of composite calls there are."""

from tools.definitions.implementations.builtin import CALL_TOOL, RUN_BATCH, RUN_PROGRAM
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.execution import batch, calling, chains, programs
from tools.execution.composition import Kind

KINDS: dict[str, Kind] = {
    RUN_BATCH: Kind(batch.turn),
    CALL_TOOL: Kind(calling.turn),
    RUN_PROGRAM: Kind(programs.turn),
    ToolType.CHAIN: Kind(chains.turn, sees_its_end=True),
}


def kind_of(definition: ToolDefinition) -> Kind:
    """How a composite call of this definition takes its turns."""
    return KINDS[definition.entry_point or definition.type]
