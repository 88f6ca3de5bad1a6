import pytest

from tests import factories


@pytest.fixture
def actor(organization):
    return factories.actor(organization)
