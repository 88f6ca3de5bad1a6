"""Decides in which organization a person acts: their own, or another one that they were granted."""

from dataclasses import replace

from tools.definitions.callers import Caller
from tools.errors import NotFound
from tools.models import Organization, User


def act_in_organization(caller: Caller, slug: str | None) -> Caller:
    """The same person in the organization `slug`. Raises `NotFound` where it is not granted.

    Roles and a superuser's rights reach there; the groups and permissions that were granted at home
    do not.
    """
    if not slug or slug == caller.organization:
        return caller
    organization = Organization.objects.filter(slug=slug).first()
    if organization is None or not _may_act_in(caller, organization):
        raise NotFound(
            f"There is no organization {slug[:63]!r} for you.", code="organization_not_found"
        )
    return replace(
        caller if caller.is_superuser else without_grants(caller),
        organization_id=organization.pk,
        organization=organization.slug,
        revision=organization.revision,
    )


def without_grants(caller: Caller) -> Caller:
    """With none of the groups and permissions that its home organization granted."""
    return replace(caller, granted_groups=frozenset(), granted_permissions=frozenset())


def _may_act_in(caller: Caller, organization: Organization) -> bool:
    if caller.is_superuser:
        return True
    user = User.objects.filter(pk=caller.user_id, is_active=True).first()
    return user is not None and user.has_perm("tools.act_in_organization", organization)
