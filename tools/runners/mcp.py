"""A tool of an MCP server: called as the caller's credentials allow, held to what was approved."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connection

from sandbox.errors import ErrorCode
from sandbox.spec import Outcome
from tools.catalog import mcp_health, mcp_tokens
from tools.catalog.masking import Mask, of_values
from tools.catalog.mcp_catalog import CatalogServer
from tools.catalog.upstreams import endpoint_of, hub, owner_of
from tools.definitions import schemas
from tools.mcpclient.errors import Changed, Lost, Unauthorized, UpstreamCode, UpstreamFailure
from tools.mcpclient.hub import Endpoint, Stopped
from tools.mcpclient.listing import UpstreamTool
from tools.mcpclient.results import ToolAnswer
from tools.models import CredentialScope, OnDrift
from tools.runners.base import Run, UpstreamResult


def run(run: Run) -> UpstreamResult:
    implementation = run.definition.raw["implementation"]
    server = run.snapshot.mcp_servers.get(implementation["server"])
    if server is None:
        message = f"There is no MCP server {implementation['server']} in this organization."
        return _failed(UpstreamCode.UNAVAILABLE, message)
    return _with_token(run, server, owner_of(server, run.caller_kind, run.caller_id))


def _with_token(run: Run, server: CatalogServer, owner: str, refused: str = "") -> UpstreamResult:
    """A token that the server refuses is renewed once: nothing was begun with it."""
    try:
        endpoint = endpoint_of(server, owner, refused=refused)
    except UpstreamFailure as problem:
        return _failed(problem.code, str(problem))
    mask = of_values(endpoint.secrets)
    try:
        answer, tool = _watched(run, server, endpoint, mask)
    except Stopped as stopped:
        return _stopped(run, stopped)
    except Lost as problem:
        return UpstreamResult(Outcome.FAILED, None, ErrorCode.LOST, str(problem))
    except Unauthorized as problem:
        if problem.challenge.wants_more:
            _noted(partial(mcp_tokens.note_wanted, server, owner, problem.challenge))
        elif endpoint.token and not refused:
            return _with_token(run, server, owner, endpoint.token)
        return _failed(problem.code, mask.quotation(str(problem)))
    except UpstreamFailure as problem:
        return _failed(problem.code, mask.quotation(str(problem)))
    return _result(run, answer, tool, mask)


def _watched(
    run: Run, server: CatalogServer, endpoint: Endpoint, mask: Mask
) -> tuple[ToolAnswer, UpstreamTool | None]:
    """The call, and what it shows about the server's health."""
    breaker = hub().breaker(endpoint.server)
    was_open, unknown = breaker.open, breaker.open or breaker.untried
    try:
        return _called(run, server, endpoint, mask)
    except UpstreamFailure as problem:
        if breaker.open and not was_open:
            said = mask.quotation(str(problem))
            _noted(partial(mcp_health.note_dead, server.id, said))
        raise
    finally:
        if unknown and not (breaker.open or breaker.untried):
            _noted(partial(mcp_health.note_alive, server.id))


def _called(
    run: Run, server: CatalogServer, endpoint: Endpoint, mask: Mask
) -> tuple[ToolAnswer, UpstreamTool | None]:
    pin = run.definition.raw["implementation"].get("pin", "")
    try:
        return _asked(run, server, endpoint, pin, mask)
    except Changed as change:
        if server.scope != CredentialScope.ORGANIZATION:
            raise  # a list of one's own says nothing about other people's
        tool = run.snapshot.tools[run.definition.name]
        seen = mask.value(change.seen)
        _noted(partial(mcp_health.note_changed, tool, run.snapshot.organization_id, seen))
        if tool.on_drift == OnDrift.REFUSE or change.seen is None:
            raise
        return _asked(run, server, endpoint, "", mask)


def _asked(
    run: Run, server: CatalogServer, endpoint: Endpoint, pin: str, mask: Mask
) -> tuple[ToolAnswer, UpstreamTool | None]:
    return hub().call(
        endpoint,
        _name_there(run, server),
        _arguments(run),
        timeout_s=run.timeout_s,
        pin=pin,
        over=lambda: _over(run),
        tell=lambda words: run.tell(mask.quotation(words)),
    )


def _name_there(run: Run, server: CatalogServer) -> str:
    tool = str(run.definition.raw["implementation"]["tool"])
    return server.remote_name if server.remote_name and tool == server.name else tool


def _arguments(run: Run) -> dict[str, Any]:
    """Unchanged (S5); arguments written by hand have defaults that the server knows nothing of."""
    return run.arguments if run.definition.raw["parameters"] else run.parameters


def _over(run: Run) -> bool:
    return run.stop.is_set() or (run.until is not None and run.until() <= time.monotonic())


def _noted(note: Callable[[], None]) -> None:
    try:
        note()
    finally:
        if not connection.in_atomic_block:
            connection.close()  # none is held while a tool runs


def _result(run: Run, answer: ToolAnswer, tool: UpstreamTool | None, mask: Mask) -> UpstreamResult:
    if answer.failed:
        return _failed(ErrorCode.TOOL_ERROR, mask.quotation(answer.message))
    declared = tool.output_schema if tool else None
    if declared and not run.definition.raw["output_schema"]:
        flaw = _flaw_in(answer, declared)
        if flaw:
            return _failed(UpstreamCode.INVALID, flaw)
    output = mask.value(answer.output)
    if _size(output) > run.definition.max_output_bytes:
        message = "The MCP server answered more than the tool may return."
        return _failed(ErrorCode.OUTPUT_LIMIT, message)
    return UpstreamResult(Outcome.SUCCESS, output)


def _size(output: Any) -> int:
    """Bytes of a text, or of anything else as JSON."""
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return len(text.encode())


def _flaw_in(answer: ToolAnswer, declared: dict[str, Any]) -> str:
    """By the server's own schema; a definition's is looked at where every tool's is."""
    try:
        validator = schemas.compiled(declared)
    except schemas.BadSchema:
        return ""  # what cannot be read promises nothing
    if not answer.structured or validator.flaws(answer.output):
        return "The MCP server answered with something that its own output schema does not allow."
    return ""


def _stopped(run: Run, stopped: Stopped) -> UpstreamResult:
    if stopped.late:
        message = f"The MCP server did not answer within {run.timeout_s} s."
        return UpstreamResult(Outcome.TIMEOUT, None, ErrorCode.TIMEOUT, message)
    code = ErrorCode.CANCELLED if stopped.sent else ErrorCode.NOT_BEGUN
    return UpstreamResult(Outcome.CANCELLED, None, code, "the caller ended the call")


def _failed(code: str, message: str) -> UpstreamResult:
    return UpstreamResult(Outcome.FAILED, None, code, message)
