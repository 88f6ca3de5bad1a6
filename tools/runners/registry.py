"""Maps tool types to runners."""

from tools.definitions.vocabulary import ToolType
from tools.runners import builtin, code, http, knowledge, mcp, prompt, service
from tools.runners.base import Runner, in_turns

RUNNERS: dict[ToolType, Runner] = {
    ToolType.BUILTIN: Runner(builtin.run),
    ToolType.CODE: Runner(code.run),
    ToolType.HTTP: Runner(http.run),
    ToolType.SERVICE: Runner(service.run),
    ToolType.MCP: Runner(mcp.run),
    ToolType.PROMPT: Runner(prompt.run),
    ToolType.TEXT_COMPLETION: Runner(prompt.run_completion),
    ToolType.KNOWLEDGE_QUERY: Runner(knowledge.run_search),
    ToolType.STRUCTURED_QUERY: Runner(knowledge.run_query),
    ToolType.GRAPH_UPDATE: Runner(knowledge.run_update),
    ToolType.CHAIN: Runner(in_turns),
}
