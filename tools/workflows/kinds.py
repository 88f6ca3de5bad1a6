"""The kinds of composite calls that are workflows, added when the product starts."""

from tools.definitions.implementations.builtin import CALL_TOOL, FIND_TOOLS, RUN_BATCH, RUN_PROGRAM
from tools.definitions.vocabulary import ToolType
from tools.execution import composites
from tools.execution.composition import Kind
from tools.workflows import batch, calling, chains, programs, tool_discovery

composites.add(RUN_BATCH, Kind(batch.run_batch_turn))
composites.add(CALL_TOOL, Kind(calling.run_call_turn))
composites.add(FIND_TOOLS, Kind(tool_discovery.run_search_turn))
composites.add(RUN_PROGRAM, Kind(programs.run_program_turn))
composites.add(ToolType.CHAIN, Kind(chains.run_chain_turn, sees_its_end=True))
