from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests import agent_runs, factories
from tools.models import Agent, Execution, Organization, User

Grant = Callable[..., Client]


@pytest.fixture
def person(organization: Organization) -> User:
    """A user without any permission."""
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
        client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
        return client

    return enter


@pytest.fixture
def has_a_model(settings: Any) -> None:
    """No worker runs it: the transaction is rolled back."""
    settings.LLM_BASE_URL, settings.LLM_MODEL = "http://127.0.0.1:9/v1", "stub"
    settings.LLM_PRICES = {"another": (1, 1)}


@pytest.fixture
def run(agent: Agent, organization: Organization) -> Execution:
    """Of an agent, with an answer."""
    factories.tool(organization)
    return agent_runs.finished(agent)
