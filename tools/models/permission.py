"""django-guardian's object permissions, in tables with real foreign keys: a grant is deleted with
its row, and cannot be created for a missing one."""

from django.db import models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from tools.models.agent import Agent
from tools.models.group import ToolGroup
from tools.models.organization import Organization
from tools.models.tool import Tool


class ToolUserObjectPermission(UserObjectPermissionBase):
    content_object = models.ForeignKey(Tool, on_delete=models.CASCADE)


class ToolGroupObjectPermission(GroupObjectPermissionBase):
    """Of people's (auth) groups on a tool."""

    content_object = models.ForeignKey(Tool, on_delete=models.CASCADE)


class ToolGroupUserObjectPermission(UserObjectPermissionBase):
    content_object = models.ForeignKey(ToolGroup, on_delete=models.CASCADE)


class ToolGroupGroupObjectPermission(GroupObjectPermissionBase):
    """Of people's (auth) groups on a tool group."""

    content_object = models.ForeignKey(ToolGroup, on_delete=models.CASCADE)


class AgentUserObjectPermission(UserObjectPermissionBase):
    content_object = models.ForeignKey(Agent, on_delete=models.CASCADE)


class AgentGroupObjectPermission(GroupObjectPermissionBase):
    content_object = models.ForeignKey(Agent, on_delete=models.CASCADE)


class OrganizationUserObjectPermission(UserObjectPermissionBase):
    content_object = models.ForeignKey(Organization, on_delete=models.CASCADE)


class OrganizationGroupObjectPermission(GroupObjectPermissionBase):
    content_object = models.ForeignKey(Organization, on_delete=models.CASCADE)
