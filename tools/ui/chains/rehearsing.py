"""The dry run of a chain, for the tool's page."""

from typing import Any

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.vocabulary import ToolType
from tools.policy.questions import EffectiveRequest
from tools.ui.shown import cut, pretty
from tools.workflows.chain_dry_run import rehearse

_RUNS = {"yes": "runs", "no": "is skipped", "unknown": "is decided when it is there"}


def can_be_rehearsed(tool: CatalogTool) -> bool:
    return tool.definition.type == ToolType.CHAIN


def rehearsed(
    caller: Caller,
    tool: CatalogTool,
    parameters: dict[str, Any],
    asked: EffectiveRequest,
    snapshot: Snapshot,
) -> list[dict[str, Any]]:
    """A line for the chain itself where it has a finding, and one for each step; no tool is
    called."""
    found = rehearse(tool, parameters, caller=caller, asked=asked, snapshot=snapshot)
    lines = [_line(line) for line in found["steps"]]
    if found["refused"] or found["confirmation"] or found["errors"]:
        lines.insert(0, _itself(tool, parameters, found))
    return lines


def _itself(tool: CatalogTool, parameters: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    return found | {
        "tool_name": tool.name,
        "words": "is the chain itself",
        "shown": cut(pretty(parameters)),
        "flaws": found["errors"],
    }


def _line(line: dict[str, Any]) -> dict[str, Any]:
    many = "" if line["items"] is None else f", {line['items']} times"
    return line | {
        "words": f"{_RUNS[line['runs']]}{many}",
        "shown": cut(pretty(line["parameters"])),
        "flaws": line["errors"],
    }
