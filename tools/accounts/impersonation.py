"""Decides who may call tools as an agent (impersonation): superusers, and people with that grant.

The permission is granted for every agent of the organization, or for one of them. It has effect
only with the permission to read every execution: an agent's calls may refer to its earlier outputs.
"""

from uuid import UUID

from django.db.models import QuerySet
from guardian.shortcuts import get_objects_for_user

from tools.models import Agent, User

IMPERSONATE = "tools.impersonate_agent"
_READS = "tools.view_execution"


def impersonable_agents(user_id: UUID) -> QuerySet[Agent]:
    """Agents of the person's own organization that they may impersonate; others are not listed."""
    user = User.objects.filter(pk=user_id, is_active=True, is_service_account=False).first()
    if user is None or not user.has_perm(_READS):
        return Agent.objects.none()
    here = Agent.objects.filter(organization_id=user.organization_id)
    if user.has_perm(IMPERSONATE):
        return here
    granted: QuerySet[Agent] = get_objects_for_user(
        user, IMPERSONATE, here, with_superuser=False, accept_global_perms=False
    )
    return granted
