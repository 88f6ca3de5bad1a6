"""Fixtures that tests of several packages of `tools` use."""

import pytest

from tests import factories
from tests.gates import gate

__all__ = ["gate"]


@pytest.fixture
def scout(organization):
    return factories.agent(organization, "scout", groups=["default", "read"])
