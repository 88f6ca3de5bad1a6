import pytest

from tests import factories


@pytest.fixture
def scout(organization):
    return factories.agent(organization, "scout", groups=["default", "read"])
