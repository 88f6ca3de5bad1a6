"""Runs the built-in tools: in the sandbox like any other, except those that need what must not
enter it.

Parameters that an agent cannot give are added here: the quota of the workspace, a schema by its
name.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from sandbox.spec import Preloaded, RunOutcome, SandboxResult
from tools.builtin import manifest
from tools.builtin.content_definitions import SCHEMAS
from tools.builtin.workspaces import WorkspaceBusy, workspace_lock
from tools.catalog.sandbox.content_schemas import slot_of
from tools.definitions.implementations.tool_types import ASK_MODEL
from tools.models import ContentSchemaVersion
from tools.runners import knowledge, language_models, messages
from tools.runners.sandbox_runs import builtin_surroundings, run_program
from tools.runners.tool_runs import ToolRun

_WRITERS_WAIT_S = 10.0


class PreparationFailed(Exception):
    """The call cannot be prepared. Code and message are for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


# Tools that run in the worker itself.
HOSTED: dict[str, Callable[[ToolRun], SandboxResult]] = {
    ASK_MODEL: language_models.run_ask_model,
    "create_entity": knowledge.run_create_entity,
    "execute_ckvs_query": knowledge.run_ckvs_query,
    "search_knowledge": knowledge.run_search_knowledge,
    "send_message": messages.run,
}


def run(job: ToolRun) -> SandboxResult:
    name = job.definition.raw["implementation"]["entry_point"]
    if hosted := HOSTED.get(name):
        return hosted(job)
    prepare = _PREPARATIONS.get(name)
    try:
        prepared = replace(job, parameters=prepare(job)) if prepare else job
        with _hold_workspace(job) if name == "write_file" else nullcontext():
            return _run_in_sandbox(prepared, manifest.ISOLATED[name])
    except PreparationFailed as error:
        return SandboxResult(RunOutcome.FAILED, error_code=error.code, error_message=error.message)


def _run_in_sandbox(job: ToolRun, builtin: manifest.Isolated) -> SandboxResult:
    return run_program(job, Preloaded(builtin.module), builtin_surroundings(job, builtin))


@contextmanager
def _hold_workspace(job: ToolRun) -> Iterator[None]:
    """Holds the workspace from the check of its quota until it is written. Raises
    `PreparationFailed`."""
    try:
        with workspace_lock(job.organization, min(_WRITERS_WAIT_S, job.timeout_s), job.stop.is_set):
            yield
    except WorkspaceBusy:
        raise PreparationFailed(
            "WORKSPACE_BUSY", "Others write to the workspace; try again."
        ) from None


def _add_quota(job: ToolRun) -> dict[str, Any]:
    quota = job.snapshot.workspace
    return job.parameters | {"quota": {"files": quota.files, "bytes": quota.bytes}}


def _add_schema(job: ToolRun) -> dict[str, Any]:
    """The schema itself in place of its name. Raises `PreparationFailed`."""
    given = dict(job.parameters)
    name, number = given.pop("schema_name", None), given.pop("schema_version", None)
    if name is None:
        return given
    if given.get("schema") is not None or given.get("xsd") is not None:
        raise PreparationFailed("SCHEMA_MISSING", "Give either a schema or the name of one.")
    if name in SCHEMAS:
        return given | {"schema": SCHEMAS[name]}
    rows = ContentSchemaVersion.objects.select_related("schema").filter(
        schema__organization_id=job.snapshot.organization_id, schema__name=name
    )
    found = (rows if number is None else rows.filter(number=number)).first()
    if found is None:
        version = "" if number is None else f" in version {number}"
        raise PreparationFailed("SCHEMA_UNKNOWN", f"There is no schema {name[:63]!r}{version}.")
    return given | {slot_of(found.schema.kind): found.document}


_PREPARATIONS: dict[str, Callable[[ToolRun], dict[str, Any]]] = {
    "write_file": _add_quota,
    "validate_content": _add_schema,
}
