from django.urls import URLPattern, path

from audit.api import RecordDetail, RecordList
from tools.api import (
    agents,
    egress_credentials,
    executions,
    groups,
    organizations,
    sandbox_profiles,
    tokens,
    tools,
)

TOOL = "tools/<str:name>"
EXECUTION = "executions/<uuid:execution_id>"
AGENT = "agents/<str:slug>"

urlpatterns: list[URLPattern] = [
    path("tools", tools.ToolList.as_view(), name="api-tools"),
    path("tools/explain", tools.ToolExplanation.as_view(), name="api-explain"),
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
    path("groups", groups.GroupList.as_view(), name="api-groups"),
    path("groups/<path:name>", groups.GroupDetail.as_view(), name="api-group"),
    path("agents", agents.AgentList.as_view(), name="api-agents"),
    path(AGENT, agents.AgentDetail.as_view(), name="api-agent"),
    path(f"{AGENT}/suspend", agents.AgentSuspend.as_view(), name="api-suspend"),
    path(f"{AGENT}/tokens", agents.TokenList.as_view(), name="api-agent-tokens"),
    path(f"{AGENT}/tokens/<uuid:token_id>", agents.TokenDetail.as_view(), name="api-agent-token"),
    path("tokens", tokens.PersonalTokens.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", tokens.PersonalToken.as_view(), name="api-token"),
    path("organizations", organizations.OrganizationList.as_view(), name="api-organizations"),
    path(
        "organizations/<str:slug>",
        organizations.OrganizationDetail.as_view(),
        name="api-organization",
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
    path("tiers", organizations.TierList.as_view(), name="api-tiers"),
    path("tiers/<str:name>", organizations.TierDetail.as_view(), name="api-tier"),
    path("audit/records", RecordList.as_view(), name="api-audit"),
    path("audit/records/<uuid:record_id>", RecordDetail.as_view(), name="api-audit-record"),
]
