"""What tests of several rooms of `tools` ask for."""

import pytest

from tests import factories
from tests.gates import gate

__all__ = ["gate"]


@pytest.fixture
def scout(organization):
    return factories.agent(organization, "scout", groups=["default", "read"])
