from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Permission
from django.test import Client, override_settings

from tests import factories
from tools.models import Organization, User

Grant = Callable[..., Client]


class QuickHasher(PBKDF2PasswordHasher):
    """The product's own, but of one iteration instead of a million: half a second less for each
    password that a test sets or gives."""

    iterations = 1


@pytest.fixture(autouse=True)
def _quick_passwords() -> Iterator[None]:
    name = f"{QuickHasher.__module__}.{QuickHasher.__qualname__}"
    with override_settings(PASSWORD_HASHERS=[name]):
        yield


@pytest.fixture
def person(organization: Organization) -> User:
    """Somebody without any permission."""
    return factories.person(organization, password="correct horse")


@pytest.fixture
def client_of(person: User) -> Grant:
    """A browser of the person, who is granted what is named: `app.codename`."""

    def enter(*permissions: str, **fields: Any) -> Client:
        for name in permissions:
            app, codename = name.split(".")
            found = Permission.objects.get(codename=codename, content_type__app_label=app)
            person.user_permissions.add(found)
        for field, value in fields.items():
            setattr(person, field, value)
        person.save()
        client = Client()
        client.force_login(person, backend="tools.policy.login.PeopleBackend")
        return client

    return enter
