"""Database models: rows, constraints, and query sets; no calls outward."""

from tools.models.agent import Agent, Allowance, AllowanceUse, RateHit, Reservation, Token
from tools.models.cache import CacheEntry
from tools.models.confirmation import (
    Confirmation,
    ConfirmationDecision,
    ConfirmationRule,
    ConfirmationStatus,
)
from tools.models.content_schema import ContentSchema, ContentSchemaVersion, SchemaKind
from tools.models.day_of_calls import DayFigures, DayOfCalls, RollupPart
from tools.models.execution import Execution, Resolution
from tools.models.execution_event import ExecutionEvent, StoredEvent
from tools.models.execution_key import ExecutionKey
from tools.models.group import Pin, ToolGroup
from tools.models.idempotency_key import IdempotencyKey
from tools.models.knowledge import (
    GraphScope,
    KnowledgeEntry,
    KnowledgeIndex,
    KnowledgePending,
)
from tools.models.message import (
    InboxItem,
    Message,
    MessageChannel,
    MessageKind,
    MessageState,
)
from tools.models.open_execution import OpenExecution
from tools.models.organization import LicenseTier, Organization
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
from tools.models.request_record import CatalogNames, RequestRecord, ToolFilter
from tools.models.sandbox_profile import EgressCredential, SandboxProfile
from tools.models.session import Session, StateTransition
from tools.models.source import (
    CredentialScope,
    Decision,
    Grant,
    McpAuthorization,
    McpConsent,
    McpCredential,
    McpOAuthClient,
    McpServer,
    ServiceStatus,
    ToolService,
    Transport,
    UpstreamChange,
)
from tools.models.stored_output import StoredOutput
from tools.models.tool import (
    VOUCHED,
    OnDrift,
    Origin,
    SigningKey,
    Tool,
    ToolQuestion,
    ToolSearch,
    ToolStatus,
    ToolVersion,
    ToolWords,
)
from tools.models.user import (
    AuthenticatorApp,
    PersonSession,
    RecoveryCode,
    SecurityKey,
    SingleSignOn,
    UsedName,
    User,
)

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
    "ExecutionKey",
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
    "OpenExecution",
    "Organization",
    "OrganizationGroupObjectPermission",
    "OrganizationUserObjectPermission",
    "Origin",
    "PersonSession",
    "Pin",
    "RateHit",
    "RecoveryCode",
    "RequestRecord",
    "Reservation",
    "Resolution",
    "RollupPart",
    "SandboxProfile",
    "SchemaKind",
    "SecurityKey",
    "ServiceStatus",
    "Session",
    "SigningKey",
    "SingleSignOn",
    "StateTransition",
    "StoredEvent",
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
