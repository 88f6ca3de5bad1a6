"""Decides which calls require approval, and what exactly a person approves.

Approval is required by the tool itself, by its mark as critical, by the caller's own option, or by
a rule of the organization. All reasons are collected, and the strictest one sets how many people
must approve.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from audit.canonical import commitment
from tools.definitions.implementations.tool_types import ALWAYS_CONFIRMED
from tools.definitions.vocabulary import ToolType
from tools.policy.questions import CallOptions, Question

if TYPE_CHECKING:
    from tools.catalog.snapshot import CatalogConfirmationRule, CatalogTool
    from tools.models import Execution

APPROVALS_OF_CRITICAL = 2


@dataclass(frozen=True)
class ApprovalRequirement:
    """Why an approval is required, and how many people must approve."""

    reasons: tuple[str, ...]
    approvals: int = 1


def requirement_of(question: Question, options: CallOptions) -> ApprovalRequirement | None:
    """None for a call that may run without approval."""
    found = [*_reasons_of_tool(question, options), *_reasons_of_rules(question)]
    if not found:
        return None
    return ApprovalRequirement(tuple(text for text, _ in found), max(people for _, people in found))


def bound_hash(
    execution: "Execution",
    tool: "CatalogTool",
    *,
    expires_at: datetime,
    approvals: int,
    covers: Mapping[str, object] | None = None,
) -> str:
    """The SHA-256 over all that would run, for whom and on what terms, in canonical JSON.

    Computed again from the stored row whenever it is compared, so that what a person saw is what
    runs.
    """
    return commitment(
        {
            "organization": str(execution.organization_id),
            "execution": str(execution.pk),
            "account": str(execution.user_id),
            "agent": _text(execution.agent_id),
            "token": _text(execution.token_id),
            **({"made_by": str(execution.made_by_id)} if execution.made_by_id else {}),
            "tool": {"id": str(tool.id), "name": execution.tool_name, "digest": tool.digest},
            "parameters": execution.parameters,
            **execution.references,
            "groups": execution.requested_groups,
            "session": _text(execution.session_id),
            "state": execution.state,
            "options": execution.options,
            "timeout_s": float(execution.timeout_s),
            "cost": _amount(execution.cost),
            "expires_at": expires_at.astimezone(UTC).isoformat(timespec="microseconds"),
            "approvals_needed": approvals,
            **({"covers": dict(covers)} if covers else {}),
        }
    )


def describe_conditions(rule: "CatalogConfirmationRule") -> list[str]:
    """The conditions of a rule in words; empty for a rule that matches every call."""
    found = {
        f"the tool {rule.tool_name}": bool(rule.tool_name),
        f"tools of the group {rule.group_name}": bool(rule.group_name),
        "this agent": rule.agent_id is not None,
        f"a cost of {_amount(rule.min_cost)} or more": rule.min_cost is not None,
        "tools that may have side effects": rule.side_effects,
        "a tool the caller has never used with success": rule.first_use,
    }
    return [words for words, given in found.items() if given]


def _reasons_of_tool(question: Question, options: CallOptions) -> Iterator[tuple[str, int]]:
    tool = question.tool
    if tool.critical:
        yield f"{tool.name} is marked critical: two people must agree.", APPROVALS_OF_CRITICAL
    if tool.definition.raw["requires_confirmation"] or _is_always_confirmed(tool):
        yield f"{tool.name} runs only when a person has agreed.", 1
    if options.require_confirmation:
        yield options.confirmation_reason or "The caller asked for a person's consent.", 1


def _is_always_confirmed(tool: "CatalogTool") -> bool:
    """Regardless of its stored definition."""
    raw = tool.definition.raw
    built_in = raw["type"] == ToolType.BUILTIN
    return built_in and raw["implementation"]["entry_point"] in ALWAYS_CONFIRMED


def _reasons_of_rules(question: Question) -> Iterator[tuple[str, int]]:
    for rule in question.snapshot.confirmation_rules:
        if _matches(rule, question) and (
            not rule.first_use or not question.facts.used_before(question.caller, question.tool)
        ):
            words = ", ".join(describe_conditions(rule)) or "every call"
            yield f"The rule “{rule.name}” asks for it: {words}.", rule.approvals_needed


def _matches(rule: "CatalogConfirmationRule", question: Question) -> bool:
    """Whether the conditions of a rule match that need no query."""
    if rule.agent_id is not None and rule.agent_id != question.caller.agent_id:
        return False
    return rule_matches_tool(rule, question.tool, question.snapshot.groups_of(question.tool))


def rule_matches_tool(
    rule: "CatalogConfirmationRule", tool: "CatalogTool", groups: frozenset[str]
) -> bool:
    """Whether a rule can match a tool, which is in `groups`, for any caller."""
    definition = tool.definition
    return (
        rule.tool_name in {"", tool.name}
        and (not rule.group_name or rule.group_name in groups)
        and (rule.min_cost is None or definition.cost >= rule.min_cost)
        and (not rule.side_effects or definition.raw["constraints"]["allow_side_effects"])
    )


def _amount(cost: Decimal | None) -> str:
    return "" if cost is None else f"{cost.normalize():f}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
