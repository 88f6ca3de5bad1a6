from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tools.builtin.workspace import workspace_of
from tools.execution.pipeline import perform
from tools.models import Execution


@pytest.fixture
def workspace(committed: None, organization: Any) -> Path:
    return workspace_of(organization.slug)


@pytest.fixture
def run(committed: None, agent: Any) -> Callable[..., Execution]:
    """Performs one call of a built-in tool to its end."""

    def call(tool: str, **parameters: Any) -> Execution:
        group = ["write"] if tool == "write_file" else ["read-only"]
        execution = factories.execution(agent, tool, group=group, **parameters)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return call
