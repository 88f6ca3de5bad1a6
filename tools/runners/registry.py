"""Which runner performs which type of tool."""

from tools.definitions.vocabulary import ToolType
from tools.runners import builtin, code, http, mcp, service
from tools.runners.base import Runner

# Those that are transactional are named by `vocabulary.TRANSACTIONAL_TYPES` as well.
RUNNERS: dict[ToolType, Runner] = {
    ToolType.BUILTIN: Runner(builtin.run),
    ToolType.CODE: Runner(code.run),
    ToolType.HTTP: Runner(http.run),
    ToolType.SERVICE: Runner(service.run),
    ToolType.MCP: Runner(mcp.run),
}
