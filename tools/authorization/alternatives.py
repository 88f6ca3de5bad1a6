"""Suggests alternatives for a tool that a call may not use now (checklist S1, 15).

Only tools the caller may use in the very same request are named, and only to a caller who was
granted the tool it asked for: a refusal reveals no other tools.
"""

from collections.abc import Iterator
from typing import Any

from tools.catalog.registry import CatalogTool, Snapshot
from tools.catalog.search.likeness import ranked, relevant
from tools.policy import gates
from tools.policy.permissions import PERMISSION
from tools.policy.questions import AccessRequest

MOST = 3
# Refusals that say "not now" or "not here", and not "not you".
REPLACEABLE = frozenset(
    {"tool_not_in_group", "tool_not_in_state", "group_closed", "tool_disabled", "tool_quarantined"}
)
_MOST_ASKED = 50  # candidates for which the gates are asked
_MOST_READ = 10_000  # entries of the index: a refusal must stay cheap


def offered(question: AccessRequest, code: str) -> dict[str, Any]:
    """What a refusal adds to its details; empty where there is no alternative."""
    names = fallbacks(question) if code in REPLACEABLE else []
    return {"alternatives": names} if names else {}


def fallbacks(question: AccessRequest) -> list[str]:
    """At most three tools like the one asked for, the likest first, that the caller may use."""
    if not all(gate(question).passed for gate in PERMISSION):
        return []
    found: list[str] = []
    for at, tool in enumerate(_alike(question.tool, question.snapshot)):
        if at == _MOST_ASKED or len(found) == MOST:
            break
        if _may_use(tool, question):
            found.append(tool.name)
    return found


def _may_use(tool: CatalogTool, question: AccessRequest) -> bool:
    asked = AccessRequest(question.caller, tool, question.asked, question.snapshot)
    return all(gate(asked).passed for gate in gates.GATES)


def _alike(tool: CatalogTool, snapshot: Snapshot) -> Iterator[CatalogTool]:
    """Tools in service of the same category, or that can do one of the same things."""
    raw = tool.definition.raw
    able = frozenset(raw["capabilities"])
    said = " ".join([tool.name, *raw["capabilities"], raw["title"] or "", raw["description"]])
    for found in relevant(one for one in ranked(snapshot, said, _MOST_READ) if one.tool != tool):
        other = found.tool.definition.raw
        same = other["category"] == raw["category"] or not able.isdisjoint(other["capabilities"])
        if same and found.tool.enabled:
            yield found.tool
