"""The kinds of composite calls that are workflows, added when the product starts."""

from tools.definitions.implementations.tool_types import (
    CALL_TOOL,
    FIND_TOOLS,
    RUN_BATCH,
    RUN_PROGRAM,
)
from tools.definitions.vocabulary import ToolType
from tools.execution import composites
from tools.execution.composition import Kind
from tools.workflows import batch, calling, chains, programs, tool_discovery

composites.add(RUN_BATCH, Kind(batch.turn))
composites.add(CALL_TOOL, Kind(calling.turn))
composites.add(FIND_TOOLS, Kind(tool_discovery.turn))
composites.add(RUN_PROGRAM, Kind(programs.turn))
composites.add(ToolType.CHAIN, Kind(chains.turn, sees_its_end=True))
