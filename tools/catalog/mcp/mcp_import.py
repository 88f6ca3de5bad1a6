"""Imports chosen tools from the tool list of an MCP server."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.actions import difference as changes_between
from audit.events import Event, Outcome
from tools.catalog.actions import changing, register_tool, update_tool
from tools.catalog.mcp import mcp_health
from tools.catalog.mcp.mcp_catalog import Authorized, CatalogServer, Values, catalog_server
from tools.catalog.mcp.mcp_definitions import mcp_definition, renew_definition
from tools.catalog.mcp.mcp_servers import tools_of
from tools.catalog.mcp.mcp_tokens import key_of
from tools.catalog.mcp.mcp_values import Mask, mask_of_values
from tools.catalog.mcp.upstreams import client_pool, endpoint_of
from tools.catalog.signatures import drift
from tools.definitions.mcp.listed_tools import (
    APPROVED_FIELDS,
    approval_digest,
    find_suspicions,
    review_digest,
)
from tools.definitions.mcp.repairs import LONGEST_MESSAGE
from tools.definitions.texts.names import TOOL_NAME
from tools.definitions.texts.tool_formats import UPSTREAM
from tools.definitions.vocabulary import ToolType
from tools.errors import Malformed, NotFound, ToolcribError, Unavailable
from tools.mcpclient.client_pool import CallStopped
from tools.mcpclient.errors import Unauthorized, UpstreamFailure
from tools.models import McpServer, OnDrift, Organization, Tool, ToolStatus

PATIENCE_S = 20.0
MOST_BYTES = 4 * 1024 * 1024  # of a snapshot
MOST_ITEMS = 1_000
MOST_DATA = 4_000  # characters of JSON about a failure, as its server sent it
# Fields that the importing user may override.
TIGHTENED = (
    "title", "description", "category", "parameters", "output_schema", "constraints",
    "required_permissions", "requires_confirmation", "group", "state", "available_in_states",
    "rate_limit_per_minute", "cost_per_invocation", "cache_ttl", "delivery", "argument_validation",
    "capabilities",
)  # fmt: skip


@dataclass
class McpImportItem:
    """The result of one tool of an import."""

    tool: str
    name: str
    result: str
    errors: list[dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        shown = {"tool": self.tool, "name": self.name, "result": self.result}
        return shown | {"errors": self.errors}


@dataclass(frozen=True)
class ToolChange:
    """How a tool of a server compares with the approved one. `name` is its name in the catalog,
    where it is imported."""

    tool: str
    name: str | None
    change: str  # changed, gone, unpinned, new or same

    @property
    def differs(self) -> bool:
        return self.change in {"changed", "gone"}

    @property
    def key(self) -> str:
        """What forms call it: independent of the name that the server gives it."""
        identity = f"{self.name or ''}\n{self.tool}".encode(errors="replace")
        return hashlib.sha256(identity).hexdigest()[:16]


def of_row(row: McpServer) -> CatalogServer:
    credentials = {one.owner: Values.from_row(one) for one in row.credentials.all()}
    consented = {one.owner: Authorized.from_row(one) for one in row.authorizations.all()}
    return catalog_server(row, credentials, consented)


def refresh(*, row: McpServer, by: Actor, owner: str = "") -> McpServer:
    """List the server's tools now and keep the list. Raises `Unavailable`; then the stored list is
    kept, and the row has the time since when the server does not answer."""
    mask = Mask(())
    key = key_of(row.organization_id, owner)
    try:
        endpoint = endpoint_of(of_row(row), key)
        mask = mask_of_values(endpoint.secrets)
        try:
            listing = client_pool().list_tools(endpoint, PATIENCE_S)
        except Unauthorized:
            if not endpoint.token:
                raise
            endpoint = endpoint_of(of_row(row), key, refused=endpoint.token)
            mask = mask_of_values(endpoint.secrets)
            listing = client_pool().list_tools(endpoint, PATIENCE_S)
    except (UpstreamFailure, CallStopped) as problem:
        said = "It did not answer in time." if isinstance(problem, CallStopped) else str(problem)
        said = mask.quotation(said)
        mcp_health.note_dead(row.pk, said)
        raise _unavailable(row, said, mask.value(getattr(problem, "data", None))) from None
    tools = [listing.tools[name].raw for name in sorted(listing.tools)]
    if len(json.dumps(tools)) > MOST_BYTES:
        message = f"The list of the MCP server {row.name} is longer than {MOST_BYTES} bytes."
        raise Unavailable(message, code="mcp_server_unavailable", server=row.name)
    if mask.value(tools) != tools:
        message = f"The list of the MCP server {row.name} repeats a credential it is called with."
        raise Unavailable(message, code="mcp_server_unavailable", server=row.name)
    findings = [
        {**one.as_dict(), "tool": mask.quotation(one.tool), "message": mask.quotation(one.message)}
        for one in listing.findings
    ]
    return _keep(row, tools, findings, client_pool().version(endpoint), by)


def _unavailable(row: McpServer, message: str, data: Any) -> Unavailable:
    """`data` is what the server sent about it beside a message."""
    details = {"data": data} if data and len(json.dumps(data)) <= MOST_DATA else {}
    return Unavailable(message, code="mcp_server_unavailable", server=row.name, **details)


@transaction.atomic
def _keep(
    row: McpServer,
    tools: list[dict[str, Any]],
    findings: list[dict[str, Any]],
    protocol: str,
    by: Actor,
) -> McpServer:
    Organization.objects.next_revision(row.organization_id)
    row.refresh_from_db()
    before, now = list_digests(row.snapshot or []), timezone.now()
    row.snapshot, row.snapshot_at, row.last_seen_at, row.findings = tools, now, now, findings
    row.protocol, row.protocol_at, row.last_error, row.dead_since = protocol, now, "", None
    kept = ["snapshot", "snapshot_at", "last_seen_at", "findings", "protocol", "protocol_at"]
    row.save(update_fields=[*kept, "last_error", "dead_since"])
    said = dict(changes_between(before, list_digests(tools)))
    record(Event.MCP_SERVER_REFRESH, by=by, outcome=Outcome.CHANGED, subject=row.name, details=said)
    return row


def list_digests(tools: list[dict[str, Any]]) -> dict[str, str]:
    """By the name of each listed tool."""
    return {raw["name"]: approval_digest(raw) for raw in tools}


def tool_changes(row: McpServer, digests: Mapping[str, str]) -> list[ToolChange]:
    """Of each imported tool, by name, then of each new one. `digests` are of the latest list, and
    no definition is read."""
    at = "version__definition__implementation__"
    rows = tools_of(row).order_by("name").values_list("name", f"{at}tool", f"{at}pin")
    found = [ToolChange(tool, name, _change(digests.get(tool), pin)) for name, tool, pin in rows]
    taken = {one.tool for one in found}
    return found + [ToolChange(tool, None, "new") for tool in digests if tool not in taken]


def difference(row: McpServer, of: Sequence[ToolChange] | None = None) -> list[dict[str, Any]]:
    """Of the latest list from what was approved: one entry a tool, field by field. `of` are the
    tools that it is asked about; None: all."""
    changes = tool_changes(row, list_digests(row.snapshot or [])) if of is None else of
    listed = {raw["name"]: raw for raw in row.snapshot or []}
    names = [one.name for one in changes if one.change == "changed"]
    approved = dict(
        tools_of(row).filter(name__in=names).values_list("name", "version__definition__metadata")
    )
    return [
        _entry(one, approved.get(one.name, {}).get(UPSTREAM), listed.get(one.tool))
        for one in changes
    ]


def _change(digest: str | None, pin: str | None) -> str:
    if digest is None:
        return "gone"
    if pin is None:
        return "unpinned"
    return "same" if digest == pin else "changed"


def _entry(one: ToolChange, approved: Any, seen: Any) -> dict[str, Any]:
    differs = one.change in {"changed", "new"}
    return {
        "tool": one.tool,
        "name": one.name,
        "change": one.change,
        "fields": _fields(approved or {}, seen or {}) if differs else [],
        "suggested": suggested(seen or {}),
        "digest": seen and review_digest(seen),
        "suspicions": find_suspicions(seen or {}),
    }


def _fields(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"field": name, "before": before.get(name), "after": after.get(name)}
        for name in APPROVED_FIELDS
        if before.get(name) != after.get(name)
    ]


def suggested(raw: dict[str, Any]) -> dict[str, Any]:
    """Suggested settings from the server's unverified annotations."""
    annotations = raw.get("annotations") or {}
    if annotations.get("readOnlyHint") is True:
        return {"delivery": "pure", "constraints": {"allow_side_effects": False}}
    if annotations.get("idempotentHint") is True:
        return {"delivery": "idempotent"}
    return {"requires_confirmation": True} if annotations.get("destructiveHint") is True else {}


def import_tools(
    *, row: McpServer, items: Any, by: Actor, dry_run: bool = False
) -> list[McpImportItem]:
    """Import the chosen tools from the latest list, with the given overrides. Raises `Malformed`,
    `NotFound`.

    A refused tool does not affect the others.
    """
    if row.snapshot is None:
        message = f"The tools of {row.name} were not listed yet; refresh it first."
        raise NotFound(message, code="mcp_server_not_listed")
    if not isinstance(items, list) or not 0 < len(items) <= MOST_ITEMS:
        raise Malformed(f"tools must be a list of 1 to {MOST_ITEMS} objects.")
    listed = {raw["name"]: raw for raw in row.snapshot}
    with transaction.atomic():
        done = [_imported(row, listed, item, by) for item in items]
        transaction.set_rollback(dry_run)
    return done


def has_changed(done: list[McpImportItem]) -> bool:
    """Whether existing tools were imported again."""
    return any(item.result in {"updated", "unchanged"} for item in done)


def _imported(row: McpServer, listed: dict[str, Any], item: Any, by: Actor) -> McpImportItem:
    if not isinstance(item, dict) or not isinstance(item.get("tool"), str):
        flaw = {"field": "tool", "message": "is required: the tool's name at its server"}
        return McpImportItem("", "", "refused", [flaw])
    there = item["tool"]
    name = item.get("name") or local_name(there)
    wrong = _flaw_in(row, there, listed.get(there), item)
    if wrong is not None:
        return McpImportItem(there[:256], str(name)[:128], "refused", [wrong])
    unknown = sorted(set(item) - {"tool", "name", "digest", "arguments", *TIGHTENED})
    if unknown:
        flaws = [{"field": one[:60], "message": "is not known here"} for one in unknown]
        return McpImportItem(there, str(name)[:128], "refused", flaws)
    try:
        with transaction.atomic():
            result = _taken_over(row, listed[there], name, item, by)
    except ToolcribError as error:
        flaws = error.field_errors()
        return McpImportItem(there, str(name)[:128], "refused", flaws)
    return McpImportItem(there, name, result)


def _flaw_in(row: McpServer, there: str, raw: Any, item: Any) -> dict[str, str] | None:
    """Why a tool is not imported: it is not listed, is not what was read, or must be read first."""
    if raw is None:
        why = next(
            (f"cannot be used: it {one['message']}" for one in row.findings
             if one["result"] == "refused" and one["tool"] == there),
            "is not in the server's latest list",
        )  # fmt: skip
        return {"field": "tool", "message": why}
    read = item.get("digest")
    if read is not None and read not in (review_digest(raw), approval_digest(raw)):
        return {"field": "digest", "message": "is of what was read; the list says otherwise now"}
    suspicions = find_suspicions(raw)
    if suspicions and read != review_digest(raw):
        message = "is required, of what a person has read (GET …/difference): the tool "
        return {"field": "digest", "message": message + "; ".join(suspicions)[:LONGEST_MESSAGE]}
    if not item.get("name") and not local_name(there):
        message = "is required: no letter of the server's name may be part of a name here"
        return {"field": "name", "message": message}
    return None


def _taken_over(row: McpServer, raw: dict[str, Any], name: Any, item: Any, by: Actor) -> str:
    wanted = {key: item[key] for key in TIGHTENED if key in item}
    if "arguments" in item:
        wanted.setdefault("parameters", item["arguments"])
    named = Tool.objects.present().filter(organization_id=row.organization_id)
    known = isinstance(name, str) and TOOL_NAME.fullmatch(name)
    rows = named.select_related("version", "organization").filter(name=name if known else "")
    existing = rows.first()
    if existing is None or existing.type != ToolType.MCP:
        definition = mcp_definition(row.name, raw, name) | wanted
        if wanted.get("parameters"):
            definition.pop("input_schema")
        made = register_tool(organization=row.organization, definition=definition, by=by)
        drift.set_on_drift(tool=made, policy=OnDrift(row.on_drift), by=by)
        return "created"
    existing = changing(existing)  # concurrent decisions of people are kept
    assert existing.version is not None
    before = existing.version.digest
    tool = update_tool(
        tool=existing, definition=renew_definition(row.name, existing, raw, wanted), by=by
    )
    released = _released(tool, by)
    drift.settle(tool=tool, by=by)
    assert tool.version is not None
    return "updated" if released or tool.version.digest != before else "unchanged"


def _released(tool: Tool, by: Actor) -> bool:
    """Whether it was quarantined; a person has now reviewed the change."""
    if tool.status != ToolStatus.QUARANTINED:
        return False
    before = {"status": tool.status}
    tool.status, tool.status_reason = ToolStatus.ACTIVE, ""
    tool.revision = Organization.objects.next_revision(tool.organization_id)
    tool.save(update_fields=["status", "status_reason", "revision", "updated_at"])
    record(
        Event.TOOL_ENABLE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=tool.version.digest if tool.version else "",
        details=dict(changes_between(before, {"status": tool.status})),
    )
    return True


def local_name(name: str) -> str:
    """The valid name nearest to the server's name; empty where it has letters of another script,
    since the rest would be a name of something else."""
    if TOOL_NAME.fullmatch(name):
        return name
    letters = unicodedata.normalize("NFKD", name)
    letters = "".join(one for one in letters if not unicodedata.combining(one))
    if any(one.isalnum() and not one.isascii() for one in letters):
        return ""
    plain = "".join(
        one if one.isascii() and (one.isalnum() or one in "_.-") else "-" for one in letters
    )
    return plain.strip("-.")[:128]
