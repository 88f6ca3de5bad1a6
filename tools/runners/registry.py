"""Which runner performs which type of tool."""

from tools.definitions.vocabulary import ToolType
from tools.runners import builtin, code
from tools.runners.base import Runner

RUNNERS: dict[ToolType, Runner] = {ToolType.BUILTIN: builtin.run, ToolType.CODE: code.run}
