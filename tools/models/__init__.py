"""Database models: rows, constraints, and query sets; no calls outward."""

from tools.models.agent import Agent, Token
from tools.models.allowance import Allowance, AllowanceUse, RateHit, Reservation
from tools.models.cache import CacheEntry
from tools.models.confirmation import (
    Confirmation,
    ConfirmationDecision,
    ConfirmationRule,
    ConfirmationStatus,
)
from tools.models.content_schema import ContentSchema, ContentSchemaVersion, SchemaKind
from tools.models.day_of_calls import DayFigures, DayOfCalls, Part
from tools.models.egress_credential import EgressCredential
from tools.models.execution import Execution, ExecutionEvent, Resolution
from tools.models.group import ToolGroup
from tools.models.idempotency_key import IdempotencyKey
from tools.models.knowledge import (
    GraphScope,
    KnowledgeEntry,
    KnowledgeIndex,
    KnowledgePending,
)
from tools.models.mcp_authorization import (
    Grant,
    McpAuthorization,
    McpConsent,
    McpOAuthClient,
)
from tools.models.message import (
    InboxItem,
    Message,
    MessageChannel,
    MessageKind,
    MessageState,
)
from tools.models.organization import Organization
from tools.models.permission import (
    AgentGroupObjectPermission,
    AgentUserObjectPermission,
    OrganizationGroupObjectPermission,
    OrganizationUserObjectPermission,
    ToolGroupGroupObjectPermission,
    ToolGroupObjectPermission,
    ToolGroupUserObjectPermission,
    ToolUserObjectPermission,
)
from tools.models.person_session import PersonSession
from tools.models.pin import Pin
from tools.models.request_record import CatalogNames, RequestRecord, ToolFilter
from tools.models.sandbox_profile import SandboxProfile
from tools.models.second_factor import (
    AuthenticatorApp,
    RecoveryCode,
    SecurityKey,
    SingleSignOn,
)
from tools.models.session import Session
from tools.models.signing_key import SigningKey
from tools.models.source import (
    CredentialScope,
    McpCredential,
    McpServer,
    ServiceStatus,
    ToolService,
    Transport,
)
from tools.models.stored_output import StoredOutput
from tools.models.tier import LicenseTier
from tools.models.tool import VOUCHED, OnDrift, Origin, Tool, ToolStatus, ToolVersion
from tools.models.tool_words import ToolQuestion, ToolSearch, ToolWords
from tools.models.transition import StateTransition
from tools.models.upstream_change import Decision, UpstreamChange
from tools.models.used_name import UsedName
from tools.models.user import User

__all__ = [
    "VOUCHED",
    "Agent",
    "AgentGroupObjectPermission",
    "AgentUserObjectPermission",
    "Allowance",
    "AllowanceUse",
    "AuthenticatorApp",
    "CacheEntry",
    "CatalogNames",
    "Confirmation",
    "ConfirmationDecision",
    "ConfirmationRule",
    "ConfirmationStatus",
    "ContentSchema",
    "ContentSchemaVersion",
    "CredentialScope",
    "DayFigures",
    "DayOfCalls",
    "Decision",
    "EgressCredential",
    "Execution",
    "ExecutionEvent",
    "Grant",
    "GraphScope",
    "IdempotencyKey",
    "InboxItem",
    "KnowledgeEntry",
    "KnowledgeIndex",
    "KnowledgePending",
    "LicenseTier",
    "McpAuthorization",
    "McpConsent",
    "McpCredential",
    "McpOAuthClient",
    "McpServer",
    "Message",
    "MessageChannel",
    "MessageKind",
    "MessageState",
    "OnDrift",
    "Organization",
    "OrganizationGroupObjectPermission",
    "OrganizationUserObjectPermission",
    "Origin",
    "Part",
    "PersonSession",
    "Pin",
    "RateHit",
    "RecoveryCode",
    "RequestRecord",
    "Reservation",
    "Resolution",
    "SandboxProfile",
    "SchemaKind",
    "SecurityKey",
    "ServiceStatus",
    "Session",
    "SigningKey",
    "SingleSignOn",
    "StateTransition",
    "StoredOutput",
    "Token",
    "Tool",
    "ToolFilter",
    "ToolGroup",
    "ToolGroupGroupObjectPermission",
    "ToolGroupObjectPermission",
    "ToolGroupUserObjectPermission",
    "ToolQuestion",
    "ToolSearch",
    "ToolService",
    "ToolStatus",
    "ToolUserObjectPermission",
    "ToolVersion",
    "ToolWords",
    "Transport",
    "UpstreamChange",
    "UsedName",
    "User",
]
