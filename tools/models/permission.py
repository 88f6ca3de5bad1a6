"""django-guardian's object permissions, in tables with real foreign keys: a grant is deleted with
its row, and cannot be created for a missing one. All grants of an organization can be listed."""

from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from tools.models.agent import Agent
from tools.models.group import ToolGroup
from tools.models.organization import Organization
from tools.models.tool import Tool

_ACCOUNT = """
    CASE WHEN u.is_service_account THEN 'agent' ELSE 'user' END,
    CASE WHEN u.is_service_account THEN a.slug ELSE u.username END
"""
_ACCOUNTS = """
    JOIN tools_user u ON u.id = x.user_id AND u.organization_id = %(organization)s
    LEFT JOIN tools_agent a ON a.service_account_id = u.id
"""
_EVERY = "p.codename = 'execute_tool' AND c.app_label = 'tools'"
_EVERY_TABLES = """
    JOIN auth_permission p ON p.id = x.permission_id
    JOIN django_content_type c ON c.id = p.content_type_id
"""
_OF_TOOL = """
    JOIN auth_permission p ON p.id = x.permission_id AND p.codename = 'execute_tool'
    JOIN tools_tool t ON t.id = x.content_object_id AND t.deleted_at IS NULL
        AND t.organization_id = %(organization)s
"""
_OF_GROUP = """
    JOIN auth_permission p ON p.id = x.permission_id AND p.codename = 'execute_toolgroup'
    JOIN tools_toolgroup t ON t.id = x.content_object_id AND t.organization_id = %(organization)s
"""
_PEOPLE = "JOIN auth_group g ON g.id = x.group_id"
_ROWS = f"""
    SELECT {_ACCOUNT}, 'requestable_group', unnest(u.granted_groups)
    FROM (SELECT id AS user_id FROM tools_user) x {_ACCOUNTS}
    UNION SELECT {_ACCOUNT}, 'permission', unnest(u.granted_permissions)
    FROM (SELECT id AS user_id FROM tools_user) x {_ACCOUNTS}
    UNION SELECT {_ACCOUNT}, 'tool', '*'
    FROM tools_user_user_permissions x {_ACCOUNTS} {_EVERY_TABLES} WHERE {_EVERY}
    UNION SELECT {_ACCOUNT}, 'tool', t.name
    FROM tools_tooluserobjectpermission x {_ACCOUNTS} {_OF_TOOL}
    UNION SELECT {_ACCOUNT}, 'tool_group', t.name
    FROM tools_toolgroupuserobjectpermission x {_ACCOUNTS} {_OF_GROUP}
    UNION SELECT 'people_group', g.name, 'tool', '*'
    FROM auth_group_permissions x {_PEOPLE} {_EVERY_TABLES}
    WHERE {_EVERY} AND EXISTS (
        SELECT FROM tools_user_groups m JOIN tools_user u ON u.id = m.user_id
        WHERE m.group_id = g.id AND u.organization_id = %(organization)s
    )
    UNION SELECT 'people_group', g.name, 'tool', t.name
    FROM tools_toolgroupobjectpermission x {_PEOPLE} {_OF_TOOL}
    UNION SELECT 'people_group', g.name, 'tool_group', t.name
    FROM tools_toolgroupgroupobjectpermission x {_PEOPLE} {_OF_GROUP}
"""  # noqa: S608
_KEY = ", ".join(f'{column} COLLATE "C"' for column in ("subject_kind", "subject", "kind", "name"))
_WANTED = """
    subject_kind = ANY(%(subject_kinds)s)
    AND (%(subject_kind)s::text IS NULL
        OR (subject_kind = %(subject_kind)s AND subject = %(subject)s))
    AND (%(tool)s::text IS NULL OR (kind = 'tool' AND name = %(tool)s))
    AND (%(group)s::text IS NULL OR (kind IN ('tool_group', 'requestable_group')
        AND name = %(group)s))
"""


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


class GrantRow(NamedTuple):
    """`subject` holds `name`, which is of the given `kind`."""

    subject_kind: str
    subject: str
    kind: str
    name: str


class Sought(NamedTuple):
    """Which grants; None is any."""

    subject_kinds: list[str]
    subject_kind: str | None = None
    subject: str | None = None
    tool: str | None = None
    group: str | None = None


def grant_rows(
    organization: UUID, sought: Sought, *, most: int, beside: GrantRow | None, before: bool
) -> list[GrantRow]:
    """In their order; those right after the row `beside`, or right before it."""
    direction, comparison = ("DESC", "<") if before else ("ASC", ">")
    place = f"AND ({_KEY}) {comparison} (%(k0)s, %(k1)s, %(k2)s, %(k3)s)" if beside else ""
    order = _KEY.replace(",", f" {direction},") + f" {direction}"
    statement = f"""
        SELECT * FROM ({_ROWS}) AS held (subject_kind, subject, kind, name)
        WHERE {_WANTED} {place} ORDER BY {order} LIMIT %(most)s
    """  # noqa: S608 - made of the constants above
    values: dict[str, Any] = {**sought._asdict(), "organization": organization, "most": most}
    values |= {f"k{at}": part for at, part in enumerate(beside or ())}
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found = [GrantRow(*row) for row in cursor.fetchall()]
    return found[::-1] if before else found
