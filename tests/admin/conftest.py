from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests import factories
from tools.models import Organization, User

Staff = Callable[..., Client]


@pytest.fixture
def staff(organization: Organization) -> User:
    return factories.person(organization, password="correct horse", is_staff=True)


@pytest.fixture
def staff_client(staff: User) -> Staff:
    """A member of the staff who is no superuser, with the named permissions."""

    def enter(*codenames: str) -> Client:
        staff.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(staff, backend="tools.accounts.login.login.PeopleBackend")
        return client

    return enter


@pytest.fixture
def revision(organization: Organization) -> Callable[[], int]:
    """How often the organization has changed since the test began."""

    def read_revision() -> int:
        return Organization.objects.values_list("revision", flat=True).get(pk=organization.pk)

    begun = read_revision()
    return lambda: read_revision() - begun
