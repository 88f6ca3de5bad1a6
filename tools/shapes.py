"""Serializes models to plain dicts that REST, MCP and the pages show: the shapes of the API
contract, to the letter."""

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any
from uuid import UUID

from config.http.errors import error_body
from tools.agents.agent_requests import AgentRunReport, spending_document
from tools.agents.run_parameters import REACT
from tools.agents.steps import AgentStep
from tools.approvals import confirmation_rules
from tools.catalog.group_openings import Closing
from tools.catalog.groups import Member
from tools.catalog.mcp.mcp_servers import written as mcp_written
from tools.catalog.mcp.mcp_tokens import owner_text, owner_texts
from tools.catalog.sandbox.credentials import MASK
from tools.catalog.sandbox.profiles import written
from tools.catalog.snapshot import CatalogGroup, CatalogTool, Snapshot
from tools.catalog.tiers import standing_of
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import ordered_if_valid
from tools.errors import ToolcribError
from tools.insight.explain import Explained, Explanation
from tools.insight.replay import MOST_TURNED, ChangedVerdict
from tools.insight.whatif import ImpactPreview
from tools.limits.allowances import AllowanceStatus
from tools.messaging.message_channels import channel_fields
from tools.models import (
    Agent,
    Confirmation,
    ConfirmationDecision,
    ConfirmationRule,
    ContentSchema,
    ContentSchemaVersion,
    EgressCredential,
    Execution,
    InboxItem,
    LicenseTier,
    McpAuthorization,
    McpServer,
    Message,
    MessageChannel,
    Organization,
    SandboxProfile,
    Session,
    SigningKey,
    StateTransition,
    Token,
    ToolService,
    ToolVersion,
)
from tools.policy.isolation_levels import effective_level
from tools.usage.usage_reports import UsageReport, UsageTotals


def tool_shape(tool: CatalogTool) -> dict[str, Any]:
    """A definition in its canonical form, with what the catalog knows about it."""
    return {
        **tool.definition.raw,
        "version": tool.version,
        "enabled": tool.enabled,
        "status": tool.status,
        "status_reason": tool.status_reason,
        "critical": tool.critical,
        "max_concurrency": tool.max_concurrency,
        "digest": tool.digest,
        "signature": {"key_id": tool.key_id, "value": tool.signature},
        "authentic": not tool.flaw,
        "origin": tool.origin,
        "token_estimate": tool.definition.token_price,
    }


def tool_here(tool: CatalogTool, snapshot: Snapshot) -> dict[str, Any]:
    """The same, with its effective isolation level in its organization."""
    return tool_shape(tool) | {"effective_isolation": effective_level(tool, snapshot)}


def version_shape(version: ToolVersion) -> dict[str, Any]:
    return {
        "version": version.label,
        "number": version.number,
        "digest": version.digest,
        "signature": {"key_id": version.key_id, "value": version.signature},
        "created_at": moment(version.created_at),
        "created_by": version.created_by,
        "change_note": version.note,
        "origin": version.origin,
        "definition": ordered_if_valid(version.definition),
    }


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


def group_shape(
    group: CatalogGroup,
    *,
    parent: str | None,
    children: list[str],
    closing: Closing | None,
    members: tuple[Member, ...],
    snapshot: Snapshot,
) -> dict[str, Any]:
    """`states`: those in which its tools are available, and those they lead to."""
    definitions = [snapshot.tools[member.tool].definition for member in members]
    leads = {one.raw["state"] for one in definitions}
    return {
        "name": group.name,
        "description": group.description,
        "permissions": sorted(group.permissions),
        "parent": parent,
        "children": children,
        "schedule": list(group.schedule),
        "max_queue_age_s": group.max_queue_age_s,
        "max_cpu_percent": group.max_cpu_percent,
        "open": closing is None,
        "closed_reason": closing.reason if closing else None,
        "tools": [member.tool for member in members],
        "members": [{"tool": member.tool, "through": member.through} for member in members],
        "states": sorted(leads.union(*(one.states for one in definitions)) - {None, WILDCARD}),
    }


def agent_shape(agent: Agent, tools: list[str]) -> dict[str, Any]:
    account = agent.service_account
    return {
        "slug": agent.slug,
        "description": agent.description,
        "active": agent.active,
        "strict": agent.strict,
        "max_in_flight": agent.max_in_flight,
        "groups": account.granted_groups,
        "tools": tools,
        "permissions": account.granted_permissions,
        "created_at": moment(agent.created_at),
    }


def token_shape(token: Token) -> dict[str, Any]:
    return {
        "id": str(token.pk),
        "label": token.label,
        "prefix": f"tcr_{token.public_id}",
        "scopes": token.scopes,
        "groups": token.groups,
        "tools": token.tools,
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at),
        "last_used_at": moment(token.last_used_at),
        "revoked_at": moment(token.revoked_at),
    }


def content_schema_shape(row: ContentSchema) -> dict[str, Any]:
    """Of a row `with_latest`."""
    return {
        "name": row.name,
        "kind": row.kind,
        "description": row.description,
        "versions": row.latest,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def mcp_authorization_shape(row: McpAuthorization) -> dict[str, Any]:
    """Without its tokens."""
    return {
        "owner": owner_text(row.owner),
        "issuer": row.issuer,
        "scope": row.scope,
        "good": not row.flaw and row.url == row.server.url,
        "flaw": row.flaw,
        "expires_at": row.expires_at and moment(row.expires_at),
        "connected_by": row.connected_by,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def content_schema_version_shape(version: ContentSchemaVersion) -> dict[str, Any]:
    return {
        "number": version.number,
        "document": version.document,
        "digest": version.digest,
        "note": version.note,
        "created_by": version.created_by,
        "created_at": moment(version.created_at),
    }


def organization_shape(organization: Organization) -> dict[str, Any]:
    return {
        "slug": organization.slug,
        "name": organization.name,
        "tier": organization.tier.name,
        "license": license_shape(organization),
        "minimum_isolation": organization.minimum_isolation,
        "allowed_hosts": organization.allowed_hosts,
        "time_zone": organization.time_zone,
        "max_concurrency": organization.max_concurrency,
        "max_queue_depth": organization.max_queue_depth,
        "workspace_max_files": organization.workspace_max_files,
        "workspace_max_bytes": organization.workspace_max_bytes,
        "output_days": organization.output_days,
        "created_at": moment(organization.created_at),
    }


def license_shape(organization: Organization) -> dict[str, Any]:
    """The state of the license. `effective_tier` is the lowest one when it has expired."""
    standing = standing_of(organization)
    return {
        "id": standing.license_id or None,
        "expires_at": moment(standing.expires_at),
        "grace_ends_at": moment(standing.grace_ends_at),
        "state": standing.state,
        "effective_tier": standing.tier.name,
    }


def profile_shape(profile: SandboxProfile) -> dict[str, Any]:
    return {
        **written(profile),
        "created_at": moment(profile.created_at),
        "updated_at": moment(profile.updated_at),
    }


def credential_shape(credential: EgressCredential) -> dict[str, Any]:
    """Without its value."""
    return {
        "name": credential.name,
        "header": credential.header,
        "value": MASK,
        "created_at": moment(credential.created_at),
        "updated_at": moment(credential.updated_at),
    }


def service_shape(row: ToolService) -> dict[str, Any]:
    """`announced` is the service's latest announcement, for review."""
    return {
        "id": row.name,
        "request_queue": row.request_queue,
        "response_queue": row.response_queue,
        "config_params": row.config_params,
        "default_groups": row.default_groups,
        "status": row.status,
        "announced": json.loads(row.announcement) if row.announcement else None,
        "announced_digest": row.announced_digest or None,
        "digest": row.digest or None,
        "key": row.key or None,
        "closed_because": row.closed_because or None,
        "lease_until": moment(row.lease_until),
        "last_seen": moment(row.last_seen),
        "created_at": moment(row.created_at),
    }


def mcp_server_shape(server: McpServer) -> dict[str, Any]:
    """Without the values of its headers."""
    return {
        **mcp_written(server),
        "status": _mcp_status(server),
        "tools": None if server.snapshot is None else len(server.snapshot),
        "protocol": server.protocol,
        "snapshot_at": server.snapshot_at and moment(server.snapshot_at),
        "findings": server.findings,
        "last_seen_at": server.last_seen_at and moment(server.last_seen_at),
        "last_error": server.last_error,
        "dead_since": server.dead_since and moment(server.dead_since),
        "credentials": sorted(owner_texts(one.owner for one in server.credentials.all()).values()),
        "created_at": moment(server.created_at),
    }


def _mcp_status(server: McpServer) -> str:
    if not server.enabled:
        return "disabled"
    if server.dead_since is not None:
        return "dead"
    return "unknown" if server.last_seen_at is None else "alive"


def tier_shape(tier: LicenseTier) -> dict[str, Any]:
    return {
        "name": tier.name,
        "rank": tier.rank,
        "builtin_tools": tier.builtin_tools,
        "max_custom_tools": tier.max_custom_tools,
        "isolation_levels": tier.isolation_levels,
        "custom_sandbox_profiles": tier.custom_sandbox_profiles,
    }


def allowances_shape(standings: list[AllowanceStatus]) -> dict[str, Any]:
    """The budget, which is among the quotas too."""
    budget = next((one for one in standings if one.is_budget), None)
    return {
        "budget": _allowance_fields(budget) if budget else None,
        "quotas": [
            {"tool": one.tool_name or None, "kind": one.kind} | _allowance_fields(one)
            for one in standings
        ],
    }


def _allowance_fields(one: AllowanceStatus) -> dict[str, Any]:
    return {
        "amount": money(one.amount),
        "period": one.period,
        "used": money(one.used),
        "held": money(one.held),
        "resets_at": moment(one.resets_at),
    }


def usage_shape(found: UsageReport, by: Sequence[str], time_zone: str) -> dict[str, Any]:
    return {
        "since": found.since.isoformat(),
        "until": found.until.isoformat(),
        "time_zone": time_zone,
        "by": by,
        "results": [values | _figures(figures) for values, figures in found.rows],
        "truncated": found.truncated,
    }


def _figures(figures: UsageTotals) -> dict[str, Any]:
    return asdict(figures) | {"cost": money(figures.cost)}


def explained_shape(explained: Explained, snapshot: Snapshot) -> dict[str, Any]:
    refused_by = explained.refused_by
    return {
        "tool": explained.tool.name,
        "available": explained.available,
        "refused_by": refused_by.gate if refused_by else None,
        "held": explained.needs_approval,
        "effective_isolation": effective_level(explained.tool, snapshot),
        "gates": [row.as_dict() for row in explained.rows],
    }


def request_shape(explanation: Explanation) -> dict[str, Any]:
    return {
        "caller": explanation.caller.name,
        "groups": sorted(explanation.asked.groups),
        "state": explanation.asked.state,
        "gates": [row.as_dict() for row in explanation.request],
    }


MOST_NAMED = 50


def difference_shape(found: ImpactPreview) -> dict[str, Any]:
    """Long lists are cut; their counts are not."""
    calls = found.calls
    return {
        "since": moment(found.since),
        "until": moment(found.until),
        "agents": {
            "looked_at": len(found.agents),
            "cut": found.cut,
            "results": [
                {
                    "agent": one.agent,
                    "added": one.added[:MOST_NAMED],
                    "removed": one.removed[:MOST_NAMED],
                    "added_count": len(one.added),
                    "removed_count": len(one.removed),
                }
                for one in found.seen
            ],
        },
        "calls": calls
        and {
            "looked_at": calls.calls,
            "combinations": calls.combinations,
            "cut": calls.cut,
            "would_be_refused": _turned(calls.calls_refused, calls.would_be_refused, found.agents),
            "would_pass": _turned(calls.calls_passed, calls.would_pass, found.agents),
        },
    }


def _turned(calls: int, turned: list[ChangedVerdict], agents: dict[UUID, str]) -> dict[str, Any]:
    return {
        "calls": calls,
        "results": [
            {
                "agent": agents[one.combination.agent_id],
                "tool": one.combination.tool,
                "group": one.combination.groups,
                "state": one.combination.state,
                "calls": one.combination.calls,
                "gate": one.verdict.gate,
                "code": one.verdict.code,
                "reason": one.verdict.reason,
            }
            for one in turned[:MOST_TURNED]
        ],
    }


def money(amount: Decimal) -> str:
    """Exact, without needless zeros."""
    return f"{amount.normalize():f}"


def moment(at: Any) -> str | None:
    """RFC 3339 in UTC."""
    return at.isoformat().replace("+00:00", "Z") if at else None


def signing_key_shape(row: SigningKey) -> dict[str, Any]:
    return {
        "key_id": row.key_id,
        "public_key": b64encode(bytes(row.public)).decode("ascii"),
        "created_at": row.created_at,
        "retired_at": row.retired_at,
        "distrusted_at": row.distrusted_at,
    }


def channel_shape(channel: MessageChannel) -> dict[str, Any]:
    """Without its secrets."""
    return {
        "id": str(channel.pk),
        **channel_fields(channel),
        "created_at": moment(channel.created_at),
        "updated_at": moment(channel.updated_at),
    }


def message_shape(message: Message) -> dict[str, Any]:
    execution = message.execution_id
    return {
        "id": str(message.pk),
        "channel": message.channel_name,
        "kind": message.kind,
        "execution_id": None if execution is None else str(execution),
        "sender": message.sender,
        "recipients": message.recipients,
        "subject": message.subject,
        "state": message.state,
        "answer": message.answer,
        "refused": message.refused,
        "created_at": moment(message.created_at),
        "updated_at": moment(message.updated_at),
    }


def inbox_shape(item: InboxItem) -> dict[str, Any]:
    message = item.message
    return {
        "id": str(item.pk),
        "channel": message.channel_name,
        "sender": message.sender,
        "subject": message.subject,
        "body": message.body,
        "received_at": moment(message.created_at),
        "read_at": moment(item.read_at),
    }
