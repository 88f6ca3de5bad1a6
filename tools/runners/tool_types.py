"""Maps tool types to runners."""

from tools.definitions.vocabulary import ToolType
from tools.runners import builtin, http, knowledge, language_models, mcp, sandbox_runs, service
from tools.runners.tool_runs import Runner, refuse_composite

RUNNERS: dict[ToolType, Runner] = {
    ToolType.BUILTIN: Runner(builtin.run),
    ToolType.CODE: Runner(sandbox_runs.run_code),
    ToolType.HTTP: Runner(http.run),
    ToolType.SERVICE: Runner(service.run),
    ToolType.MCP: Runner(mcp.run),
    ToolType.PROMPT: Runner(language_models.run_prompt),
    ToolType.TEXT_COMPLETION: Runner(language_models.run_completion),
    ToolType.KNOWLEDGE_QUERY: Runner(knowledge.run_search),
    ToolType.STRUCTURED_QUERY: Runner(knowledge.run_query),
    ToolType.GRAPH_UPDATE: Runner(knowledge.run_update),
    ToolType.CHAIN: Runner(refuse_composite),
}
