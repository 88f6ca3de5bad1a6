"""Creates the initial records of a new installation."""

import logging
import secrets

from django.db import transaction

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.accounts.account_actions import create_organization
from tools.accounts.environment_settings import record_settings
from tools.accounts.roles import update_roles
from tools.catalog.builtins import install_builtins
from tools.catalog.search.tool_words import note_missing
from tools.definitions.callers import CallerKind
from tools.models import LicenseTier, Organization, UsedName, User

log = logging.getLogger(__name__)
FIRST_ORGANIZATION = "default"
FIRST_ADMINISTRATOR = "admin"
FIRST_TIER = "Enterprise"


def system(organization: str) -> Actor:
    return Actor(CallerKind.SYSTEM, "bootstrap", organization)


def first_administrator() -> str | None:
    """Make sure that an organization and an administrator exist, every built-in tool and role.

    Returns the administrator's password when the account was created now; it is never shown again.
    """
    note_missing()  # each tool in a transaction of its own
    return _first_administrator()


@transaction.atomic
def _first_administrator() -> str | None:
    by = system(FIRST_ORGANIZATION)
    if not Organization.objects.exists():
        tier = LicenseTier.objects.get(name=FIRST_TIER)
        create_organization(slug=FIRST_ORGANIZATION, name="Default", tier=tier, by=by)
    for organization in Organization.objects.all():
        install_builtins(organization=organization, by=system(organization.slug))
    update_roles()
    record_settings()
    if User.objects.filter(is_superuser=True).exists():
        return None
    if UsedName.objects.filter(name=FIRST_ADMINISTRATOR).exists():
        log.warning("no superuser is left: manage.py createsuperuser makes one")
        return None
    return _make_administrator(Organization.objects.earliest("created_at"))


def _make_administrator(place: Organization) -> str:
    """Returns the password, which is not audited; the creation of the account is."""
    password = secrets.token_urlsafe(12)
    User.objects.create_superuser(FIRST_ADMINISTRATOR, password=password, organization=place)
    record(
        Event.ROW_CHANGE,
        by=system(place.slug),
        outcome=Outcome.CHANGED,
        subject=f"user:{FIRST_ADMINISTRATOR}",
        details=difference(None, {"is_staff": True, "is_superuser": True}),
    )
    return password
