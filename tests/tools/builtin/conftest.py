"""Runs built-in tools: through the sandbox, and in this process, loaded and called as in a slot.
Calls through the sandbox test what the sandbox adds."""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from sandbox import untrusted_json
from sandbox.inside import runner, sandbox_http, template, toolcrib
from sandbox.spec import Preloaded
from tests import factories
from tools.builtin.manifest import DEFINITIONS, ISOLATED
from tools.builtin.workspaces import workspace_path
from tools.definitions.schemas.json_schemas import Validator
from tools.definitions.tool import ToolDefinition, read_definition
from tools.execution.perform import perform
from tools.models import Agent, Execution, Organization

QUOTA = {"files": 1_000, "bytes": 1 << 30}
_DEFINITIONS = {raw["name"]: raw for raw in DEFINITIONS}


@dataclass(frozen=True)
class Answer:
    """The result as the execution's row stores it."""

    status: str
    output: Any = None
    error_code: str = ""
    error_message: str = ""


@cache
def loaded(tool: str) -> dict[str, ModuleType]:
    """The modules of the tool's profile, under the names they import each other by."""
    ours = {"toolcrib": toolcrib, "sandbox_http": sandbox_http}
    with tempfile.TemporaryDirectory() as directory, override_settings(WORKSPACES_DIR=directory):
        preload = ISOLATED[tool].profile("in-process").preload
    sys.modules.update(ours)
    try:
        return {name: template.preload(name, source) for name, source in preload}
    finally:
        for name in (*ours, *dict(preload)):
            sys.modules.pop(name, None)


def answer(tool: str, parameters: dict[str, Any], **added: Any) -> Answer:
    """Calls the tool with valid parameters; `added` is what a worker adds to them."""
    _fits(tool, "input_schema", parameters)
    program = Preloaded(ISOLATED[tool].module).to_wire()
    given = {**_definition(tool).defaults, **parameters, **added}
    job = json.loads(json.dumps({"program": program, "parameters": given}))
    kind, frame = runner.answer(job, loaded(tool))
    if kind == runner.ERROR:
        error = json.loads(frame)
        return Answer("Failed", error_code=error["code"], error_message=error["message"])
    output = untrusted_json.parse(frame, large_integers=True)
    _fits(tool, "output_schema", output)
    return Answer("Success", output)


def _fits(tool: str, schema: str, value: Any) -> None:
    assert _validator(tool, schema).flaws(value) == []


@cache
def _validator(tool: str, schema: str) -> Validator:
    return Validator(_definition(tool).raw[schema])


@cache
def _definition(tool: str) -> ToolDefinition:
    return ToolDefinition(read_definition(_DEFINITIONS[tool]))


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
    return workspace_path(organization.slug)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that `call` uses as the workspace."""
    place = tmp_path / "workspace"
    place.mkdir()
    for tool in ("read_file", "write_file"):
        monkeypatch.setattr(loaded(tool)["workspace"], "ROOT", str(place))
    return place


@pytest.fixture
def call(workspace: Path) -> Callable[..., Answer]:
    """Calls a built-in tool in this process."""

    def call_tool(tool: str, quota: dict[str, int] = QUOTA, **parameters: Any) -> Answer:
        added = {"quota": quota} if tool == "write_file" else {}
        return answer(tool, parameters, **added)

    return call_tool


@pytest.fixture
def put_file(workspace: Path) -> Callable[[str, bytes], None]:
    """Writes a file into the workspace of `call`."""

    def place(path: str, content: bytes) -> None:
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(content)

    return place
