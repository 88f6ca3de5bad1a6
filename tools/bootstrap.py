"""What a new installation begins with."""

import secrets

from django.db import transaction

from audit.actions import Actor
from tools.catalog.builtins import install_builtins
from tools.definitions.callers import CallerKind
from tools.models import LicenseTier, Organization, User
from tools.policy.actions import create_organization

FIRST_ORGANIZATION = "default"
FIRST_ADMINISTRATOR = "admin"
FIRST_TIER = "Enterprise"


def system(organization: str) -> Actor:
    return Actor(CallerKind.SYSTEM, "bootstrap", organization)


@transaction.atomic
def first_administrator() -> str | None:
    """Make sure that an organization and an administrator exist, and every built-in tool.

    Returns the administrator's password when the account was made now, and it is known only then.
    """
    by = system(FIRST_ORGANIZATION)
    if not Organization.objects.exists():
        tier = LicenseTier.objects.get(name=FIRST_TIER)
        create_organization(slug=FIRST_ORGANIZATION, name="Default", tier=tier, by=by)
    for organization in Organization.objects.all():
        install_builtins(organization=organization, by=system(organization.slug))
    if User.objects.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    User.objects.create_superuser(
        FIRST_ADMINISTRATOR,
        password=password,
        organization=Organization.objects.earliest("created_at"),
    )
    return password
