from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests import factories
from tools.models import Organization, User

Grant = Callable[..., Client]


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
