from django.urls import URLPattern, path

from audit.api import AlertAcknowledgement, AlertList, RecordDetail, RecordList
from tools.api import (
    agents,
    cache,
    confirmations,
    egress_credentials,
    executions,
    explain,
    grants,
    groups,
    organizations,
    recommendations,
    requests,
    sandbox_profiles,
    sessions,
    tokens,
    tools,
    usage,
    workflow,
)

TOOL = "tools/<str:name>"
EXECUTION = "executions/<uuid:execution_id>"
AGENT = "agents/<str:slug>"
CONFIRMATION = "confirmations/<uuid:confirmation_id>"
SESSION = "sessions/<uuid:session_id>"

urlpatterns: list[URLPattern] = [
    path("tools", tools.ToolList.as_view(), name="api-tools"),
    path("tools/explain", explain.ToolExplanation.as_view(), name="api-explain"),
    path("tools/what-if", explain.WhatIf.as_view(), name="api-what-if"),
    path("tools/lint", workflow.ToolLint.as_view(), name="api-lint"),
    path(TOOL, tools.ToolDetail.as_view(), name="api-tool"),
    path(f"{TOOL}/execute", executions.ToolExecute.as_view(), name="api-execute"),
    path(f"{TOOL}/enable", tools.ToolSwitch.as_view(enabled=True), name="api-enable"),
    path(f"{TOOL}/disable", tools.ToolSwitch.as_view(enabled=False), name="api-disable"),
    path(f"{TOOL}/versions", tools.ToolVersions.as_view(), name="api-versions"),
    path(f"{TOOL}/versions/<str:version>/restore", tools.ToolRestore.as_view(), name="api-restore"),
    path("executions", executions.ExecutionList.as_view(), name="api-executions"),
    path(EXECUTION, executions.ExecutionDetail.as_view(), name="api-execution"),
    path(f"{EXECUTION}/cancel", executions.ExecutionCancel.as_view(), name="api-cancel"),
    path(f"{EXECUTION}/events", executions.ExecutionEvents.as_view(), name="api-events"),
    path("sessions", sessions.SessionList.as_view(), name="api-sessions"),
    path(SESSION, sessions.SessionDetail.as_view(), name="api-session"),
    path(f"{SESSION}/history", sessions.SessionHistory.as_view(), name="api-session-history"),
    path("confirmations", confirmations.ConfirmationList.as_view(), name="api-confirmations"),
    path(
        "confirmations/decide",
        confirmations.ConfirmationsDecide.as_view(),
        name="api-confirmations-decide",
    ),
    path(CONFIRMATION, confirmations.ConfirmationDetail.as_view(), name="api-confirmation"),
    path(
        f"{CONFIRMATION}/approve",
        confirmations.ConfirmationDecide.as_view(approve=True),
        name="api-confirmation-approve",
    ),
    path(
        f"{CONFIRMATION}/reject",
        confirmations.ConfirmationDecide.as_view(approve=False),
        name="api-confirmation-reject",
    ),
    path("confirmation-rules", confirmations.RuleList.as_view(), name="api-confirmation-rules"),
    path(
        "confirmation-rules/<path:name>",
        confirmations.RuleDetail.as_view(),
        name="api-confirmation-rule",
    ),
    path("groups", groups.GroupList.as_view(), name="api-groups"),
    path(
        "groups/recommendations",
        recommendations.GroupRecommendations.as_view(),
        name="api-group-recommendations",
    ),
    path("groups/<path:name>", groups.GroupDetail.as_view(), name="api-group"),
    path("agents", agents.AgentList.as_view(), name="api-agents"),
    path(AGENT, agents.AgentDetail.as_view(), name="api-agent"),
    path(f"{AGENT}/suspend", agents.AgentSuspend.as_view(), name="api-suspend"),
    path(f"{AGENT}/tokens", agents.TokenList.as_view(), name="api-agent-tokens"),
    path(f"{AGENT}/tokens/<uuid:token_id>", agents.TokenDetail.as_view(), name="api-agent-token"),
    path("grants", grants.Grants.as_view(), name="api-grants"),
    path("grants/<str:grant>", grants.GrantDetail.as_view(), name="api-grant"),
    path("states/graph", workflow.StateGraph.as_view(), name="api-state-graph"),
    path("tokens", tokens.PersonalTokens.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", tokens.PersonalToken.as_view(), name="api-token"),
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
        "egress-credentials",
        egress_credentials.CredentialList.as_view(),
        name="api-egress-credentials",
    ),
    path(
        "egress-credentials/<str:name>",
        egress_credentials.CredentialDetail.as_view(),
        name="api-egress-credential",
    ),
    path("requests", requests.RequestRecordList.as_view(), name="api-requests"),
    path("cache/invalidate", cache.CacheInvalidation.as_view(), name="api-cache-invalidate"),
    path("usage", usage.UsageView.as_view(), name="api-usage"),
    path("tiers", organizations.TierList.as_view(), name="api-tiers"),
    path("tiers/<str:name>", organizations.TierDetail.as_view(), name="api-tier"),
    path("audit/records", RecordList.as_view(), name="api-audit"),
    path("audit/alerts", AlertList.as_view(), name="api-alerts"),
    path(
        "audit/alerts/<uuid:alert_id>/acknowledge",
        AlertAcknowledgement.as_view(),
        name="api-alert-acknowledge",
    ),
    path("audit/records/<uuid:record_id>", RecordDetail.as_view(), name="api-audit-record"),
]
