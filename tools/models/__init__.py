"""Rows, constraints, and words to ask with; no calls outward."""

from tools.models.agent import Agent, Token
from tools.models.egress_credential import EgressCredential
from tools.models.execution import Execution, ExecutionEvent
from tools.models.group import ToolGroup
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
from tools.models.sandbox_profile import SandboxProfile
from tools.models.tier import LicenseTier
from tools.models.tool import VOUCHED, Origin, Tool, ToolStatus, ToolVersion
from tools.models.user import User

__all__ = [
    "VOUCHED",
    "Agent",
    "AgentGroupObjectPermission",
    "AgentUserObjectPermission",
    "EgressCredential",
    "Execution",
    "ExecutionEvent",
    "LicenseTier",
    "Organization",
    "OrganizationGroupObjectPermission",
    "OrganizationUserObjectPermission",
    "Origin",
    "SandboxProfile",
    "Token",
    "Tool",
    "ToolGroup",
    "ToolGroupGroupObjectPermission",
    "ToolGroupObjectPermission",
    "ToolGroupUserObjectPermission",
    "ToolStatus",
    "ToolUserObjectPermission",
    "ToolVersion",
    "User",
]
