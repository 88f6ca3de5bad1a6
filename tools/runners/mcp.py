"""Runs a tool of an MCP server with the caller's credentials, if it is still the approved one."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import connection

from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from tools.catalog.mcp import mcp_health, mcp_tokens
from tools.catalog.mcp.mcp_catalog import CatalogServer
from tools.catalog.mcp.mcp_values import Mask, mask_of_values
from tools.catalog.mcp.upstreams import client_pool, endpoint_of, owner_of
from tools.definitions.mcp import call_results
from tools.definitions.mcp.repairs import Repair, clean_value, repair_empty_objects
from tools.definitions.schemas import json_schemas
from tools.definitions.texts.tool_formats import UPSTREAM
from tools.mcpclient.client_pool import CallStopped, McpEndpoint
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    ToolChanged,
    Unauthorized,
    UpstreamCode,
    UpstreamFailure,
)
from tools.mcpclient.tool_answers import EXTRA_CONTENT_KEY, ToolAnswer
from tools.mcpclient.tool_lists import UpstreamTool
from tools.models import CredentialScope, OnDrift
from tools.runners.tool_runs import ToolRun, UpstreamResult

MOST_DETAILS = 4_000  # characters of JSON from the server that a failure keeps
_NOT_AS_DECLARED = (
    "The MCP server answered with something that its own output schema does not allow."
)
_UNSTRUCTURED = (
    "The MCP server gave no structured content, though its tool promises some (outputSchema)."
)
_LEFT_OUT = "{} images, audio or files beside the structured content are not in the output."
_READ_FROM_TEXT = (
    "The MCP server gave no structured content, though its tool promises some; the JSON of its "
    "text is the output."
)


def run(run: ToolRun) -> UpstreamResult:
    implementation = run.definition.raw["implementation"]
    server = run.snapshot.mcp_servers.get(implementation["server"])
    if server is None:
        message = f"There is no MCP server {implementation['server']} in this organization."
        return _failure(UpstreamCode.UNAVAILABLE, message, Mask(()))
    return _call_with_token(run, server, owner_of(server, run.caller_kind, run.caller_id))


def _call_with_token(
    run: ToolRun, server: CatalogServer, owner: str, refused: str = ""
) -> UpstreamResult:
    """A token that the server refuses is renewed once: the call was not started with it."""
    try:
        endpoint = endpoint_of(server, owner, refused=refused)
    except UpstreamFailure as problem:
        return _failure(problem.code, str(problem), Mask(()))
    mask = mask_of_values(endpoint.secrets)
    try:
        answer, tool = _call_and_note_health(run, server, endpoint, mask)
    except CallStopped as stopped:
        return _stopped_result(run, stopped)
    except AnswerLost as problem:
        return UpstreamResult(RunOutcome.FAILED, None, ErrorCode.LOST, str(problem))
    except Unauthorized as problem:
        if problem.challenge.insufficient_scope:
            _write_note(partial(mcp_tokens.note_wanted, server, owner, problem.challenge))
        elif endpoint.token and not refused:
            return _call_with_token(run, server, owner, endpoint.token)
        return _failure(problem.code, str(problem), mask, data=problem.data)
    except InvalidAnswer as problem:
        return _failure(problem.code, str(problem), mask, answer=_disclosable(run, problem.answer))
    except UpstreamFailure as problem:
        return _failure(problem.code, str(problem), mask, data=problem.data)
    return _result(run, answer, tool, mask)


def _call_and_note_health(
    run: ToolRun, server: CatalogServer, endpoint: McpEndpoint, mask: Mask
) -> tuple[ToolAnswer, UpstreamTool | None]:
    """Makes the call, and records the server's health."""
    breaker = client_pool().breaker(endpoint.server)
    was_open, unknown = breaker.open, breaker.open or breaker.untried
    try:
        return _call_pinned(run, server, endpoint, mask)
    except UpstreamFailure as problem:
        if breaker.open and not was_open:
            said = mask.quotation(str(problem))
            _write_note(partial(mcp_health.note_dead, server.id, said))
        raise
    finally:
        if unknown and not (breaker.open or breaker.untried):
            _write_note(partial(mcp_health.note_alive, server.id))


def _call_pinned(
    run: ToolRun, server: CatalogServer, endpoint: McpEndpoint, mask: Mask
) -> tuple[ToolAnswer, UpstreamTool | None]:
    pin = run.definition.raw["implementation"].get("pin", "")
    try:
        return _send_call(run, server, endpoint, pin, mask)
    except ToolChanged as change:
        if server.scope != CredentialScope.ORGANIZATION:
            raise  # a per-caller list does not apply to other callers
        tool = run.snapshot.tools[run.definition.name]
        seen = mask.value(change.seen)
        _write_note(partial(mcp_health.note_changed, tool, run.snapshot.organization_id, seen))
        if tool.on_drift == OnDrift.REFUSE or change.seen is None:
            raise
        return _send_call(run, server, endpoint, "", mask)


def _send_call(
    run: ToolRun, server: CatalogServer, endpoint: McpEndpoint, pin: str, mask: Mask
) -> tuple[ToolAnswer, UpstreamTool | None]:
    return client_pool().call_tool(
        endpoint,
        _remote_name(run, server),
        _arguments(run),
        timeout_s=run.timeout_s,
        pin=pin,
        should_stop=lambda: _is_over(run),
        on_progress=lambda words: run.tell(mask.quotation(words)),
    )


def _remote_name(run: ToolRun, server: CatalogServer) -> str:
    tool = str(run.definition.raw["implementation"]["tool"])
    return server.remote_name if server.remote_name and tool == server.name else tool


def _arguments(run: ToolRun) -> dict[str, Any]:
    """Unchanged (S5); arguments declared by hand have defaults that the server does not know."""
    return run.arguments if run.definition.raw["parameters"] else run.parameters


def _is_over(run: ToolRun) -> bool:
    return run.stop.is_set() or (run.until is not None and run.until() <= time.monotonic())


def _write_note(note: Callable[[], None]) -> None:
    try:
        note()
    finally:
        if not connection.in_atomic_block:
            connection.close()  # not held while a tool runs


def _result(
    run: ToolRun, answer: ToolAnswer, tool: UpstreamTool | None, mask: Mask
) -> UpstreamResult:
    if answer.failed:
        data = _disclosable(run, answer.data)
        hidden = answer.structured and run.definition.transform.narrows
        message = (not hidden and answer.message) or "The tool failed."
        return _failure(ErrorCode.TOOL_ERROR, message, mask, answer.warnings, data=data)
    declared = _promised_schema(run, tool)
    if declared:
        answer, flaw = _check_against_schema(declared, answer, run)
        if flaw:
            whole = _disclosable(run, _complete_answer(answer))
            return _failure(UpstreamCode.INVALID, flaw, mask, answer.warnings, answer=whole)
    output, left_out = _output_with_media(run, answer, mask)
    if _size(output) > run.definition.max_output_bytes:
        message = "The MCP server answered more than the tool may return."
        return _failure(ErrorCode.OUTPUT_LIMIT, message, mask)
    return UpstreamResult(
        RunOutcome.SUCCESS,
        output,
        observation=_observation(run, answer, mask),
        warnings=(*(mask.quotation(one) for one in answer.warnings), *left_out),
    )


def _promised_schema(run: ToolRun, tool: UpstreamTool | None) -> dict[str, Any] | None:
    """The schema that the server's answer is held to. An import with an empty output schema
    promises none."""
    declared = tool.output_schema if tool else None
    approved = run.definition.raw["metadata"].get(UPSTREAM)
    loosened = isinstance(approved, dict) and bool(approved.get("outputSchema"))
    return None if loosened and not run.definition.raw["output_schema"] else declared


def _check_against_schema(
    declared: dict[str, Any], answer: ToolAnswer, run: ToolRun
) -> tuple[ToolAnswer, str]:
    """The answer, and its error. A text that is JSON of the schema counts as structured content.
    Content that does not fit the definition's schema is refused later, as for every tool."""
    try:
        validator = json_schemas.compile_schema(declared)
    except json_schemas.BadSchema:
        return answer, ""  # an invalid schema is ignored
    if answer.structured:
        answer, fits = _repair_answer(answer, validator)
        fits = fits or bool(run.definition.raw["output_schema"])
        return answer, "" if fits else _NOT_AS_DECLARED
    try:
        parsed = answer.parsed
    except ValueError:
        return answer, _UNSTRUCTURED
    if validator.flaws(parsed):
        return answer, _UNSTRUCTURED
    warnings = (*answer.warnings, _READ_FROM_TEXT)
    return replace(answer, output=parsed, structured=True, extra_content=(), warnings=warnings), ""


def _repair_answer(
    answer: ToolAnswer, validator: json_schemas.Validator
) -> tuple[ToolAnswer, bool]:
    """The answer, and whether it fits its schema, if necessary after a repair: PHP's [] for an
    empty object, or a text that is JSON."""
    flaws = validator.flaws(answer.output)
    if not flaws:
        return answer, True
    repairs: list[Repair] = []
    if isinstance(answer.output, str):
        try:
            read = answer.parsed
        except ValueError:
            return answer, False
        repairs.append(Repair("", "is a text, which is read as the JSON that it is"))
    else:
        read = repair_empty_objects(answer.output, [flaw.place for flaw in flaws], repairs)
    if not repairs or validator.flaws(read):
        return answer, False
    warnings = [f"The MCP server's structuredContent: {repair}" for repair in repairs]
    return replace(answer, output=read, warnings=(*answer.warnings, *warnings)), True


def _complete_answer(answer: ToolAnswer) -> Any:
    """The complete answer: the call was made, and may be one that must not be repeated."""
    if not answer.extra_content:
        return answer.output
    return {"structuredContent": answer.output, "content": [*answer.extra_content]}


def _disclosable(run: ToolRun, received: Any) -> Any:
    """The part of an answer that an error may show: nothing where the definition has a
    transform."""
    return None if run.definition.transform.narrows else received


def _output_with_media(run: ToolRun, answer: ToolAnswer, mask: Mask) -> tuple[Any, tuple[str, ...]]:
    """The output, and a warning where something of the answer is not in it. Images and audio
    beside structured content are in it under a name of their own, where the definition's schema
    allows that and nothing is selected or redacted."""
    output = mask.value(answer.output)
    held = [part for part in answer.extra_content if call_results.has_bytes(part)]
    if not held or not answer.structured:
        return output, ()
    transform, schema = run.definition.transform, run.definition.raw["output_schema"]
    if isinstance(output, dict) and not transform.narrows:
        whole = {**output, EXTRA_CONTENT_KEY: mask.value(held)}
        if not schema or not json_schemas.compile_schema(schema).flaws(whole):
            return whole, ()
    return output, (_LEFT_OUT.format(len(held)),)


def _observation(run: ToolRun, answer: ToolAnswer, mask: Mask) -> str:
    """The text beside structured content, and then that content."""
    if not answer.extra_content:
        return ""
    place = f"GET /api/v1/executions/{run.execution_id}/output"
    words = call_results.content_as_text(mask.value([*answer.extra_content]), place)
    if not answer.structured:
        return words
    return f"{words}\n{json.dumps(mask.value(answer.output), ensure_ascii=False)}"


def _size(output: Any) -> int:
    """Bytes of a text, or of anything else as JSON."""
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return len(text.encode())


def _stopped_result(run: ToolRun, stopped: CallStopped) -> UpstreamResult:
    if stopped.timed_out:
        message = f"The MCP server did not answer within {run.timeout_s} s."
        return UpstreamResult(RunOutcome.TIMEOUT, None, ErrorCode.TIMEOUT, message)
    code = ErrorCode.CANCELLED if stopped.sent else ErrorCode.NOT_BEGUN
    return UpstreamResult(RunOutcome.CANCELLED, None, code, "the caller ended the call")


def _failure(
    code: str, message: str, mask: Mask, warnings: tuple[str, ...] = (), **received: Any
) -> UpstreamResult:
    """`received` is what the server sent beside the message: masked, and then cut."""
    kept = {key: value for key, value in received.items() if value is not None}
    details = {key: _shorten(mask.value(clean_value(value, []))) for key, value in kept.items()}
    return UpstreamResult(
        RunOutcome.FAILED,
        None,
        code,
        mask.quotation(message),
        details=details,
        warnings=tuple(mask.quotation(one) for one in warnings),
    )


def _shorten(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MOST_DETAILS else f"{text[:MOST_DETAILS]}…"
