from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tests.tools.builtin import in_process
from tests.tools.builtin.in_process import Answer
from tools.builtin.workspace_lock import workspace_of
from tools.execution.pipeline import perform
from tools.models import Agent, Execution, Organization

QUOTA = {"files": 1_000, "bytes": 1 << 30}


@pytest.fixture
def run(committed: None, agent: Agent) -> Callable[..., Execution]:
    """Executes one call of a built-in tool in the sandbox."""

    def call(tool: str, **parameters: Any) -> Execution:
        group = ["write"] if tool == "write_file" else ["read-only"]
        execution = factories.execution(agent, tool, group=group, **parameters)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return call


@pytest.fixture
def mounted(organization: Organization) -> Path:
    """The organization's workspace that `run` mounts."""
    return workspace_of(organization.slug)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that `call` uses as the workspace."""
    place = tmp_path / "workspace"
    place.mkdir()
    for tool in ("read_file", "write_file"):
        monkeypatch.setattr(in_process.loaded(tool)["workspace"], "ROOT", str(place))
    return place


@pytest.fixture
def call(workspace: Path) -> Callable[..., Answer]:
    """Calls a built-in tool in this process."""

    def answer(tool: str, quota: dict[str, int] = QUOTA, **parameters: Any) -> Answer:
        added = {"quota": quota} if tool == "write_file" else {}
        return in_process.answer(tool, parameters, **added)

    return answer


@pytest.fixture
def put(workspace: Path) -> Callable[[str, bytes], None]:
    """Writes a file into the workspace of `call`."""

    def place(path: str, content: bytes) -> None:
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(content)

    return place
