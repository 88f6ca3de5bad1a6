"""What tests of several rooms of `tools` ask for."""

import pytest

from tests import factories
from tests.gates import gate
from tests.tools.held import held
from tools.models import Agent, Confirmation, Organization, Tool

__all__ = ["gate"]


@pytest.fixture
def asks(organization: Organization) -> Tool:
    """The tool `echo`, which runs only when a person has agreed."""
    return factories.tool(organization, requires_confirmation=True)


@pytest.fixture
def confirmation(agent: Agent, asks: Tool) -> Confirmation:
    """A call of it that waits for a person."""
    return held(agent)
