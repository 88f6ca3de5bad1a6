from collections.abc import Iterator
from typing import Any

import pytest

from tests import factories
from tests.journeys.client import Http
from tests.stubs.web import Web, serving


@pytest.fixture
def http(crib: Any, committed: None, agent: Any) -> Http:
    """The running crib, called by an agent."""
    return Http(crib.url, factories.token(agent.service_account))


@pytest.fixture
def admin(crib: Any, committed: None, admin_user: Any) -> Http:
    """The running crib, called by a superuser."""
    return Http(crib.url, factories.token(admin_user, scopes=["read", "execute", "manage"]))


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as one:
        yield one
