"""Rows, constraints, and words to ask with; no calls outward."""

from tools.models.agent import Agent, Token
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
from tools.models.tier import LicenseTier
from tools.models.tool import Tool, ToolStatus, ToolVersion
from tools.models.user import User

__all__ = [
    "Agent",
    "AgentGroupObjectPermission",
    "AgentUserObjectPermission",
    "Execution",
    "ExecutionEvent",
    "LicenseTier",
    "Organization",
    "OrganizationGroupObjectPermission",
    "OrganizationUserObjectPermission",
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
