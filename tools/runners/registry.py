"""Maps tool types to runners."""

from tools.definitions.vocabulary import ToolType
from tools.runners import builtin, http, knowledge, mcp, prompt, sandboxing, service
from tools.runners.base import Runner, in_turns

RUNNERS: dict[ToolType, Runner] = {
    ToolType.BUILTIN: Runner(builtin.run),
    ToolType.CODE: Runner(sandboxing.run_code),
    ToolType.HTTP: Runner(http.run),
    ToolType.SERVICE: Runner(service.run),
    ToolType.MCP: Runner(mcp.run),
    ToolType.PROMPT: Runner(prompt.run_prompt),
    ToolType.TEXT_COMPLETION: Runner(prompt.run_completion),
    ToolType.KNOWLEDGE_QUERY: Runner(knowledge.run_search),
    ToolType.STRUCTURED_QUERY: Runner(knowledge.run_query),
    ToolType.GRAPH_UPDATE: Runner(knowledge.run_update),
    ToolType.CHAIN: Runner(in_turns),
}
