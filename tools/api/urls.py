from django.urls import URLPattern, path

from tools.api import agent_requests, approvals, audit, messages
from tools.api.accounts import agents, grants, organizations, tokens
from tools.api.audit import (
    AlertList,
    CheckpointList,
    RecordDetail,
    RecordExport,
    RecordList,
    RecordProof,
)
from tools.api.catalog import (
    capability_graph,
    content_schemas,
    explanations,
    groups,
    imports,
    signing_keys,
    tools,
    upstream_changes,
    workflow,
)
from tools.api.executions import batches, chains, executions, outputs, sessions, usage
from tools.api.servers import mcp_authorizations, mcp_servers, sandbox_profiles, tool_services

TOOL = "tools/<str:name>"
CHANGE = "tools/changes/<uuid:change_id>"
CHAIN = "chains/<str:name>"
BATCH = "batches/<uuid:batch_id>"
AGENT_REQUEST = "agent/requests/<uuid:request_id>"
EXECUTION = "executions/<uuid:execution_id>"
AGENT = "agents/<str:slug>"
CONFIRMATION = "confirmations/<uuid:confirmation_id>"
SERVICE = "tool-services/<str:name>"
MCP_SERVER = "mcp-servers/<str:name>"
SESSION = "sessions/<uuid:session_id>"

urlpatterns: list[URLPattern] = [
    path("tools", tools.ToolList.as_view(), name="api-tools"),
    path("tools/explain", explanations.ToolExplanation.as_view(), name="api-explain"),
    path("tools/what-if", explanations.WhatIf.as_view(), name="api-what-if"),
    path("tools/import", imports.ToolImport.as_view(), name="api-import"),
    path("tools/graph", capability_graph.ToolGraph.as_view(), name="api-tool-graph"),
    path("tools/export", imports.ToolExport.as_view(), name="api-export"),
    path("tools/lint", workflow.ToolLint.as_view(), name="api-lint"),
    path("tools/changes", upstream_changes.ChangeList.as_view(), name="api-changes"),
    path(CHANGE, upstream_changes.ChangeDetail.as_view(), name="api-change"),
    path(f"{CHANGE}/approve", upstream_changes.ChangeApprove.as_view(), name="api-change-approve"),
    path(f"{CHANGE}/reject", upstream_changes.ChangeReject.as_view(), name="api-change-reject"),
    path(f"{TOOL}/difference", upstream_changes.ToolDifference.as_view(), name="api-difference"),
    path(TOOL, tools.ToolDetail.as_view(), name="api-tool"),
    path(f"{TOOL}/execute", executions.ToolExecute.as_view(), name="api-execute"),
    path(
        f"{TOOL}/enable",
        tools.ToolSwitch.as_view(enabled=True, proof=tools.ENABLES),
        name="api-enable",
    ),
    path(
        f"{TOOL}/disable",
        tools.ToolSwitch.as_view(enabled=False, proof=tools.DISABLES),
        name="api-disable",
    ),
    path(f"{TOOL}/versions", tools.ToolVersions.as_view(), name="api-versions"),
    path(f"{TOOL}/versions/<str:version>/restore", tools.ToolRestore.as_view(), name="api-restore"),
    path("chains", chains.ChainList.as_view(), name="api-chains"),
    path(
        "chains/proposals",
        capability_graph.ChainProposals.as_view(),
        name="api-chain-proposals",
    ),
    path(CHAIN, chains.ChainDetail.as_view(), name="api-chain"),
    path(f"{CHAIN}/execute", chains.ChainExecute.as_view(), name="api-chain-execute"),
    path(f"{CHAIN}/rehearse", chains.ChainRehearsal.as_view(), name="api-chain-rehearse"),
    path("chain-runs/<uuid:run_id>", chains.ChainRun.as_view(), name="api-chain-run"),
    path(
        "agent/requests",
        agent_requests.AgentRequestList.as_view(),
        name="api-agent-requests",
    ),
    path(
        AGENT_REQUEST,
        agent_requests.AgentRequestDetail.as_view(),
        name="api-agent-request",
    ),
    path(
        f"{AGENT_REQUEST}/events",
        agent_requests.AgentRequestEvents.as_view(),
        name="api-agent-request-events",
    ),
    path("batches", batches.BatchList.as_view(), name="api-batches"),
    path(BATCH, batches.BatchDetail.as_view(), name="api-batch"),
    path(f"{BATCH}/cancel", batches.BatchCancel.as_view(), name="api-batch-cancel"),
    path("executions", executions.ExecutionList.as_view(), name="api-executions"),
    path(EXECUTION, executions.ExecutionDetail.as_view(), name="api-execution"),
    path(f"{EXECUTION}/cancel", executions.ExecutionCancel.as_view(), name="api-cancel"),
    path(f"{EXECUTION}/resolve", executions.ExecutionResolve.as_view(), name="api-resolve"),
    path(f"{EXECUTION}/output", outputs.ExecutionOutput.as_view(), name="api-output"),
    path(f"{EXECUTION}/events", executions.ExecutionEvents.as_view(), name="api-events"),
    path("sessions", sessions.SessionList.as_view(), name="api-sessions"),
    path(SESSION, sessions.SessionDetail.as_view(), name="api-session"),
    path(f"{SESSION}/history", sessions.SessionHistory.as_view(), name="api-session-history"),
    path("confirmations", approvals.ConfirmationList.as_view(), name="api-confirmations"),
    path(
        "confirmations/decide",
        approvals.ConfirmationsDecide.as_view(),
        name="api-confirmations-decide",
    ),
    path(CONFIRMATION, approvals.ConfirmationDetail.as_view(), name="api-confirmation"),
    path(
        f"{CONFIRMATION}/approve",
        approvals.ConfirmationDecide.as_view(approve=True),
        name="api-confirmation-approve",
    ),
    path(
        f"{CONFIRMATION}/reject",
        approvals.ConfirmationDecide.as_view(approve=False),
        name="api-confirmation-reject",
    ),
    path("confirmation-rules", approvals.RuleList.as_view(), name="api-confirmation-rules"),
    path(
        "confirmation-rules/<path:name>",
        approvals.RuleDetail.as_view(),
        name="api-confirmation-rule",
    ),
    path("groups", groups.GroupList.as_view(), name="api-groups"),
    path(
        "groups/recommendations",
        workflow.GroupRecommendations.as_view(),
        name="api-group-recommendations",
    ),
    path("groups/<path:name>", groups.GroupDetail.as_view(), name="api-group"),
    path("agents", agents.AgentList.as_view(), name="api-agents"),
    path(AGENT, agents.AgentDetail.as_view(), name="api-agent"),
    path(f"{AGENT}/suspend", agents.AgentSuspend.as_view(), name="api-suspend"),
    path(f"{AGENT}/tokens", tokens.TokenList.as_view(), name="api-agent-tokens"),
    path(f"{AGENT}/tokens/<uuid:token_id>", tokens.TokenDetail.as_view(), name="api-agent-token"),
    path("grants", grants.Grants.as_view(), name="api-grants"),
    path("grants/<str:grant>", grants.GrantDetail.as_view(), name="api-grant"),
    path("states/graph", workflow.StateGraph.as_view(), name="api-state-graph"),
    path(
        f"{AGENT}/tokens/<uuid:token_id>/rotate",
        tokens.TokenRotation.as_view(),
        name="api-agent-token-rotate",
    ),
    path("tokens", tokens.PersonalTokens.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", tokens.PersonalToken.as_view(), name="api-token"),
    path(
        "tokens/<uuid:token_id>/rotate",
        tokens.PersonalTokenRotation.as_view(),
        name="api-token-rotate",
    ),
    path("organizations", organizations.OrganizationList.as_view(), name="api-organizations"),
    path(
        "organizations/<str:slug>",
        organizations.OrganizationDetail.as_view(),
        name="api-organization",
    ),
    path(
        "organizations/<str:slug>/tier/preview",
        organizations.TierPreview.as_view(),
        name="api-tier-preview",
    ),
    path("sandbox-profiles", sandbox_profiles.ProfileList.as_view(), name="api-sandbox-profiles"),
    path(
        "sandbox-profiles/<str:name>",
        sandbox_profiles.ProfileDetail.as_view(),
        name="api-sandbox-profile",
    ),
    path(
        "content-schemas",
        content_schemas.ContentSchemaList.as_view(),
        name="api-content-schemas",
    ),
    path(
        "content-schemas/<str:name>",
        content_schemas.ContentSchemaDetail.as_view(),
        name="api-content-schema",
    ),
    path(
        "content-schemas/<str:name>/versions/<int:number>",
        content_schemas.ContentSchemaVersionDetail.as_view(),
        name="api-content-schema-version",
    ),
    path(
        "egress-credentials",
        sandbox_profiles.CredentialList.as_view(),
        name="api-egress-credentials",
    ),
    path(
        "egress-credentials/<str:name>",
        sandbox_profiles.CredentialDetail.as_view(),
        name="api-egress-credential",
    ),
    path("channels", messages.ChannelList.as_view(), name="api-channels"),
    path(
        "channels/<uuid:channel_id>/bounces",
        messages.ChannelBounces.as_view(),
        name="api-channel-bounces",
    ),
    path("channels/<str:name>", messages.ChannelDetail.as_view(), name="api-channel"),
    path("channels/<str:name>/key", messages.ChannelKey.as_view(), name="api-channel-key"),
    path("channels/<str:name>/test", messages.ChannelTest.as_view(), name="api-channel-test"),
    path("messages", messages.MessageList.as_view(), name="api-messages"),
    path("messages/<uuid:message_id>", messages.MessageDetail.as_view(), name="api-message"),
    path("inbox", messages.InboxList.as_view(), name="api-inbox"),
    path("inbox/<uuid:item_id>/read", messages.InboxRead.as_view(), name="api-inbox-read"),
    path("tool-services", tool_services.ServiceList.as_view(), name="api-tool-services"),
    path(SERVICE, tool_services.ServiceDetail.as_view(), name="api-tool-service"),
    path(f"{SERVICE}/state", tool_services.ServiceState.as_view(), name="api-service-state"),
    path(
        f"{SERVICE}/approve",
        tool_services.ServiceDecide.as_view(approve=True),
        name="api-service-approve",
    ),
    path(
        f"{SERVICE}/reject",
        tool_services.ServiceDecide.as_view(approve=False),
        name="api-service-reject",
    ),
    path("mcp-servers", mcp_servers.McpServerList.as_view(), name="api-mcp-servers"),
    path(MCP_SERVER, mcp_servers.McpServerDetail.as_view(), name="api-mcp-server"),
    path(f"{MCP_SERVER}/refresh", mcp_servers.McpServerRefresh.as_view(), name="api-mcp-refresh"),
    path(
        f"{MCP_SERVER}/difference",
        mcp_servers.McpServerDifference.as_view(),
        name="api-mcp-difference",
    ),
    path(
        f"{MCP_SERVER}/authorizations",
        mcp_authorizations.McpAuthorizationList.as_view(),
        name="api-mcp-authorizations",
    ),
    path(
        f"{MCP_SERVER}/authorizations/<str:owner>",
        mcp_authorizations.McpAuthorizationDetail.as_view(),
        name="api-mcp-authorization",
    ),
    path(
        f"{MCP_SERVER}/oauth-client",
        mcp_authorizations.McpServerOAuthClient.as_view(),
        name="api-mcp-oauth-client",
    ),
    path(f"{MCP_SERVER}/import", mcp_servers.McpServerImport.as_view(), name="api-mcp-import"),
    path(
        f"{MCP_SERVER}/credentials/<str:owner>",
        mcp_servers.McpServerCredential.as_view(),
        name="api-mcp-credential",
    ),
    path("signing-keys", signing_keys.SigningKeyList.as_view(), name="api-signing-keys"),
    path(
        "signing-keys/<str:key_id>",
        signing_keys.SigningKeyDetail.as_view(),
        name="api-signing-key",
    ),
    path(
        "signing-keys/<str:key_id>/distrust",
        signing_keys.SigningKeyDistrust.as_view(),
        name="api-signing-key-distrust",
    ),
    path("requests", usage.RequestRecordList.as_view(), name="api-requests"),
    path("cache/invalidate", outputs.CacheInvalidation.as_view(), name="api-cache-invalidate"),
    path("usage", usage.UsageView.as_view(), name="api-usage"),
    path("tiers", organizations.TierList.as_view(), name="api-tiers"),
    path("tiers/<str:name>", organizations.TierDetail.as_view(), name="api-tier"),
    path(
        "tiers/<str:name>/preview",
        organizations.TermsPreview.as_view(),
        name="api-tier-terms-preview",
    ),
    path("audit/records", RecordList.as_view(), name="api-audit"),
    path("audit/export", RecordExport.as_view(), name="api-audit-export"),
    path("audit/erasures", audit.Erasures.as_view(), name="api-audit-erasures"),
    path("audit/alerts", AlertList.as_view(), name="api-alerts"),
    path(
        "audit/alerts/<uuid:alert_id>/acknowledge",
        audit.AlertAcknowledgement.as_view(),
        name="api-alert-acknowledge",
    ),
    path("audit/records/<uuid:record_id>", RecordDetail.as_view(), name="api-audit-record"),
    path("audit/records/<uuid:record_id>/proof", RecordProof.as_view(), name="api-audit-proof"),
    path("audit/checkpoints", CheckpointList.as_view(), name="api-audit-checkpoints"),
]
