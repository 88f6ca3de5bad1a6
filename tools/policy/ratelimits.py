"""How often an agent may call a tool in a minute."""

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller


def count(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> str:
    return ""
