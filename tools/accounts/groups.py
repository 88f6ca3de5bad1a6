"""Changes a group on behalf of a user who may not hold all permissions of the group."""

from typing import Any

from audit.actions import Actor
from tools.accounts.grants.grant_actions import check_grantable
from tools.catalog import actions as catalog
from tools.definitions.callers import Caller
from tools.models import Organization, ToolGroup


def create_group(
    *,
    giver: Caller,
    organization: Organization,
    name: str,
    by: Actor,
    permissions: list[str] | None = None,
    **fields: Any,
) -> ToolGroup:
    """As `save_group`, where there must be none of the name yet: raises `Conflict`."""
    check_grantable(giver, {"permissions": set(permissions or ())})
    return catalog.create_group(
        organization=organization, name=name, by=by, permissions=permissions, **fields
    )


def save_group(
    *,
    giver: Caller,
    organization: Organization,
    name: str,
    by: Actor,
    permissions: list[str] | None = None,
    **fields: Any,
) -> ToolGroup:
    """As the catalog has it. Every holder of the group holds its permissions, so adding one that
    the user does not hold raises `Forbidden`."""
    known = ToolGroup.objects.filter(organization=organization, name=name).first()
    added = set(permissions or ()) - set(known.permissions if known else ())
    check_grantable(giver, {"permissions": added})
    return catalog.save_group(
        organization=organization, name=name, by=by, permissions=permissions, **fields
    )
