"""Runs a built-in tool of the sandbox in this process, loaded and called as in a slot. Calls
through the sandbox test what the sandbox adds."""

import json
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from django.test import override_settings

from sandbox import untrusted_json
from sandbox.inside import runner, sandbox_http, template, toolcrib
from sandbox.spec import Preloaded
from tools.builtin.manifest import DEFINITIONS, HTTP_CALL, ISOLATED
from tools.definitions.schemas.schemas import Validator
from tools.definitions.tool import ToolDefinition, read_definition

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
        preload = ISOLATED.get(tool, HTTP_CALL).profile("in-process").preload
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
