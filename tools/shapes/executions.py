"""Shapes of executions, of agent requests, refusals, approvals and sessions."""

from typing import Any

from config.http.errors import error_body
from tools.agents.agent_requests import AgentRunReport, spending_document
from tools.agents.run_parameters import REACT
from tools.agents.steps import AgentStep
from tools.approvals import confirmation_rules
from tools.catalog.snapshot import Snapshot
from tools.errors import ToolcribError
from tools.models import (
    Confirmation,
    ConfirmationDecision,
    ConfirmationRule,
    Execution,
    Session,
    StateTransition,
)
from tools.shapes.scalars import moment, money


def execution_shape(execution: Execution, held: Confirmation | None = None) -> dict[str, Any]:
    """The whole result of a call (specification S3, 2.2), ended or not."""
    identifier = str(execution.pk)
    return {
        "execution_id": identifier,
        "status": execution.stage,
        "parent": _parent(execution),
        "input": {"tool_name": execution.tool_name, "parameters": execution.asked},
        "references": execution.refers_to,
        "output": execution.output,
        "stored_output": _stored(execution),
        "output_expired_at": moment(execution.output_expired_at),
        "observation": execution.observation,
        "error_code": execution.error_code or None,
        "error_message": execution.error_message or None,
        "error_details": execution.error_details,
        "cached": execution.cached,
        "cost": money(execution.cost),
        "metadata": {
            "execution_id": identifier,
            "tool_version": execution.version_label,
            "started_at": moment(execution.started_at),
            "completed_at": moment(execution.completed_at),
            "duration_ms": execution.duration_ms,
            "output_size": execution.output_bytes,
            "sandbox_id": execution.sandbox_id or None,
            "execution_metrics": execution.metrics,
        },
        "session": {
            "id": str(execution.session_id) if execution.session_id else None,
            "state_before": execution.state,
            "state_after": execution.state_after or execution.state,
        },
        "confirmation": held_shape(held) if held else None,
        "resolution": resolution_shape(execution),
        "warnings": execution.warnings,
        **({"rate": execution.rate.as_dict()} if execution.rate else {}),
    }


def agent_request_shape(report: AgentRunReport) -> dict[str, Any]:
    """A request of an agent with its progress."""
    run = report.run
    shown = execution_shape(run) | {"output": None}
    return {
        "request_id": str(run.pk),
        "status": run.stage,
        "pattern": report.pattern,
        "question": report.question,
        "answer": report.answer,
        "steps": [agent_step_shape(step) for step in report.steps],
        "plan": report.plan,
        "session": report.session,
        "state": report.state,
        **spending_document(report.spent),
        "error_code": run.error_code or None,
        "error_message": run.error_message or None,
        # Fields that are set above are not repeated.
        "execution": shown | {"input": {"tool_name": run.tool_name, "parameters": {}}},
    }


def agent_step_shape(step: AgentStep) -> dict[str, Any]:
    action = step.move.action
    return {
        "step": step.number,
        "thought": step.move.thought,
        "not_called": [one["name"] for one in step.move.further],
        "warnings": list(step.move.warnings),
        "action": action.name if action else None,
        "arguments": action.arguments if action else None,
        "observation": step.observation,
        "status": step.status,
        "execution_id": str(step.execution_id) if step.execution_id else None,
        **spending_document(step.thinking + step.acting),
    }


def agent_request_line(run: Execution) -> dict[str, Any]:
    return {
        "request_id": str(run.pk),
        "status": run.stage,
        "pattern": run.parameters.get("pattern", REACT),
        "question": str(run.parameters.get("question", ""))[:200],
        "created_at": moment(run.created_at),
        "completed_at": moment(run.completed_at),
    }


def refusal_shape(error: ToolcribError) -> dict[str, Any]:
    """The body of an error response."""
    details = dict(error.details)
    beside: dict[str, Any] = {
        key: details.pop(key) for key in ("status", "execution_id") if key in details
    }
    if error.http_status == 429:
        limits = ("limit", "used", "resets_in_s")
        beside |= {key: details[key] for key in limits if key in details}
    return error_body(error.code, error.message, details) | beside


def _parent(execution: Execution) -> dict[str, str] | None:
    """The call that made this one, and its own name for it."""
    if execution.parent_id is None:
        return None
    return {"execution_id": str(execution.parent_id), "place": execution.place}


def _stored(execution: Execution) -> dict[str, Any] | None:
    """The URL of an output that is too large for the response."""
    if not execution.output_digest:
        return None
    return {
        "href": f"/api/v1/executions/{execution.pk}/output",
        "content_type": execution.output_type,
        "digest": execution.output_digest,
    }


def resolution_shape(execution: Execution) -> dict[str, Any] | None:
    if not execution.resolved_as:
        return None
    return {
        "outcome": execution.resolved_as,
        "at": moment(execution.resolved_at),
        "by": execution.resolved_by,
        "reason": execution.resolution_reason,
    }


def held_shape(confirmation: Confirmation) -> dict[str, Any]:
    """The approval that a call waits for, as its caller sees it."""
    return {
        "id": str(confirmation.pk),
        "status": confirmation.status,
        "reasons": confirmation.reasons,
        "expires_at": moment(confirmation.expires_at),
        "approvals_needed": confirmation.approvals_needed,
        "approvals": confirmation.approvals,  # type: ignore[attr-defined] # counted by the query
    }


def confirmation_shape(confirmation: Confirmation) -> dict[str, Any]:
    """A call awaiting approval: all that would run, and the decisions so far."""
    execution, words = confirmation.execution, confirmation.decisions.all()
    return {
        "id": str(confirmation.pk),
        "status": confirmation.status,
        "bound_hash": confirmation.bound_hash,
        "reasons": confirmation.reasons,
        "approvals_needed": confirmation.approvals_needed,
        "approvals": sum(word.approved for word in words),
        "decisions": [_word_shape(word) for word in words],
        "created_at": moment(confirmation.created_at),
        "expires_at": moment(confirmation.expires_at),
        "decided_at": moment(confirmation.decided_at),
        "spent_at": moment(confirmation.spent_at),
        "execution_id": str(execution.pk),
        "execution_status": execution.status,
        "tool_name": execution.tool_name,
        "tool_version": execution.tool_version.label,
        "digest": execution.tool_version.digest,
        "agent": execution.agent.slug if execution.agent else None,
        "account": execution.user.username,
        "parameters": execution.parameters,
        "references": execution.refers_to,
        "group": execution.requested_groups,
        "session": str(execution.session_id) if execution.session_id else None,
        "state": execution.state,
        "options": execution.options,
        "cost": money(execution.cost),
    }


def _word_shape(word: ConfirmationDecision) -> dict[str, Any]:
    return {
        "by": word.user.username,
        "approved": word.approved,
        "reason": word.reason,
        "at": moment(word.at),
    }


def rule_shape(rule: ConfirmationRule, snapshot: Snapshot) -> dict[str, Any]:
    """A rule, and the tools that it matches now, which reveals a misspelled name."""
    reach = confirmation_rules.reach_of_rule(rule, snapshot)
    said = confirmation_rules.describe_rule(rule)
    return {
        "name": rule.name,
        **said,
        "min_cost": None if said["min_cost"] is None else money(said["min_cost"]),
        "touches": reach.tools,
        "touches_count": reach.count,
        "created_at": moment(rule.created_at),
    }


def session_shape(session: Session) -> dict[str, Any]:
    return {
        "id": str(session.pk),
        "group": session.groups,
        "state": session.state,
        "caller": session.agent.slug if session.agent else session.user.username,
        "created_at": moment(session.created_at),
        "entered_at": moment(session.entered_at),
        "closed_at": moment(session.closed_at),
    }


def step_shape(step: Execution, arguments: Any, observation: str) -> dict[str, Any]:
    """One call of a session's history; large values are read with the execution."""
    return {
        "execution_id": str(step.pk),
        "tool_name": step.tool_name,
        "arguments": arguments,
        "status": step.status,
        "observation": observation,
        "error_code": step.error_code or None,
        "cached": step.cached,
        "state_before": step.state,
        "state_after": step.state_after or step.state,
        "created_at": moment(step.created_at),
        "completed_at": moment(step.completed_at),
    }


def transition_shape(transition: StateTransition) -> dict[str, Any]:
    """In the form of the log record of specification S1, 8.2."""
    return {
        "tool": transition.tool_name,
        "from": transition.from_state,
        "to": transition.to_state,
        "timestamp": moment(transition.at),
        "execution_id": str(transition.execution_id),
    }
