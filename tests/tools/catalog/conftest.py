import pytest

from tests import factories


@pytest.fixture
def by(organization):
    return factories.by(organization)
