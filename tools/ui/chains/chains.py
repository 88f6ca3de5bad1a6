"""`/chains/`: the list of chains, their editor, and their dry run. Each chain is a tool and has a
tool's page.
"""

from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.authorization.listings import visible_tools
from tools.catalog.actions import find_tool, register_tool, update_tool
from tools.catalog.signatures.version_signatures import check_current
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.workflow.chain_texts import ChainText, Remark, read_text, text_of
from tools.definitions.callers import Caller
from tools.definitions.chains.chain_document import Chain
from tools.definitions.tool import Definition
from tools.definitions.vocabulary import ToolType
from tools.errors import NotFound, ToolcribError
from tools.models import Tool
from tools.policy.questions import EffectiveRequest
from tools.ui.chains.chain_drawing import ChainDrawing, draw_chain, inputs_of
from tools.ui.display import pretty, truncate
from tools.web.listing import Column, Filters, Listing, search_field
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof, proof
from tools.workflows.chain_dry_run import dry_run

LIST, FORM = "chains/chains.html", "chains/chain_form.html"
CHANGED = (
    "Another person changed the chain while you wrote. What you wrote is still here: open the chain"
    " in another window, carry over what is missing, and save again."
)
RENAMED = "A chain keeps its name: {name}. Write a new chain for another one."
EXAMPLE = """\
name: read_and_check
description: Reads a file of the workspace and checks that it is JSON.
parameters:
- {name: path, type: String, description: The file., required: true}
steps:
- id: file
  tool_name: read_file
  parameters:
    path: {$input: /path}
- id: check
  tool_name: validate_content
  parameters:
    content: {$step: file, path: /output/content}
    format: json
output: {$step: check, path: /output/valid}
"""
_RUN_WORDS = {"yes": "runs", "no": "is skipped", "unknown": "is decided when it is there"}


@dataclass
class ChainDraft:
    """A chain while it is edited, with its errors and findings."""

    text: str
    tool: Tool | None
    digest: str = ""  # of the version that is edited
    read: ChainText = field(default_factory=ChainText)

    @property
    def drawing(self) -> ChainDrawing | None:
        return draw_definition(self.read.definition) if self.read.definition else None

    @property
    def flaws(self) -> list[Remark]:
        return self.read.flaws


def draw_definition(definition: Definition) -> ChainDrawing:
    return draw_chain(Chain(definition["implementation"]["chain"]), inputs_of(definition))


@dataclass(frozen=True)
class ChainRow:
    tool: CatalogTool
    steps: list[tuple[str, str]]  # their ids and tools

    @classmethod
    def of_tool(cls, tool: CatalogTool) -> "ChainRow":
        return cls(tool, [(step.id, step.tool_name) for step in tool.definition.chain.steps])


class ChainFilters(Filters):
    q = search_field("Name or what it does")


class ChainListing(Listing):
    view, template, noun, filters = "chains", LIST, "chain", ChainFilters
    order, place = "chain", "name"
    columns = [
        Column("chain", "Chain", lambda row: row.tool.name, sort=lambda tool: tool.name.lower()),
        Column("description", "", lambda row: row.tool.definition.raw["description"]),
        Column("steps", "Steps", lambda row: [step for step, _ in row.steps]),
        Column("updated", "Updated", lambda row: row.tool.updated_at,
               sort=lambda tool: tool.updated_at, css="number"),
        Column("status", "Status", lambda row: row.tool.status, sort=lambda tool: tool.status),
    ]  # fmt: skip

    def rows(self) -> list[CatalogTool]:
        words = self.values.get("q", "").lower()
        return [
            tool
            for tool in visible_tools(self.caller, snapshot_of(self.request))
            if tool.definition.type == ToolType.CHAIN
            and words in f"{tool.name} {tool.definition.raw['description']}".lower()
        ]

    def prepare(self, rows: list[CatalogTool]) -> list[ChainRow]:
        return [ChainRow.of_tool(tool) for tool in rows]

    def context(self) -> dict[str, Any]:
        return {"may_add": may(self.caller, "add_tool")}


@require_safe
@page
def chain_list(request: PageRequest) -> HttpResponseBase:
    return ChainListing(request).respond()


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def create_chain(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_tool")
    if request.method != "POST":
        return _render_form(request, ChainDraft(EXAMPLE, None))
    return _save_or_render(request, _read_draft(request, None))


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_chain(request: PageRequest, name: str) -> HttpResponseBase:
    """Save a new version. Open runs continue with their version."""
    require(request.caller, "change_tool")
    tool = find_tool(request.user.organization, name)
    if tool.type != ToolType.CHAIN:
        raise NotFound(f"There is no chain {name[:128]!r}.", code="chain_not_found")
    check_current(tool)
    assert tool.version is not None
    if request.method != "POST":
        text = text_of(tool.version.definition)
        return _render_form(request, ChainDraft(text, tool, tool.version.digest))
    return _save_or_render(request, _read_draft(request, tool))


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def check_text(request: PageRequest) -> HttpResponse:
    """The errors of a text while it is edited, and its drawing. Saves nothing."""
    if not may(request.caller, "change_tool"):
        require(request.caller, "add_tool")
    draft = _read_draft(request, None)
    draft.read = read_text(request.user.organization, draft.text)
    return render(request, f"{FORM}#checked", {"draft": draft})


def has_dry_run(tool: CatalogTool) -> bool:
    return tool.definition.type == ToolType.CHAIN


def dry_run_lines(
    caller: Caller,
    tool: CatalogTool,
    parameters: dict[str, Any],
    asked: EffectiveRequest,
    snapshot: Snapshot,
) -> list[dict[str, Any]]:
    """A line for the chain itself where it has a finding, and one for each step; no tool is
    called."""
    found = dry_run(tool, parameters, caller=caller, asked=asked, snapshot=snapshot)
    lines = [_step_line(line) for line in found["steps"]]
    if found["refused"] or found["confirmation"] or found["errors"]:
        lines.insert(0, _chain_line(tool, parameters, found))
    return lines


def _read_draft(request: PageRequest, tool: Tool | None) -> ChainDraft:
    given = request.POST
    text = given.get("text", "").replace("\r\n", "\n")
    return ChainDraft(text, tool, given.get("digest", "")[:100])


def _save_or_render(request: PageRequest, draft: ChainDraft) -> HttpResponseBase:
    organization = request.user.organization
    draft.read = read_text(organization, draft.text)
    if draft.read.definition is None:
        return _render_form(request, draft, status=400)
    try:
        saved = _save_draft(request, draft)
    except ToolcribError as error:
        draft.flaws.append(Remark(None, "", error.message))
        return _render_form(request, draft, status=error.http_status)
    if saved is None:
        return _render_form(request, draft, status=409)
    messages.success(request, f"{saved.name} is saved. Try it under Call.")
    return redirect("tool", name=saved.name)


def _save_draft(request: PageRequest, draft: ChainDraft) -> Tool | None:
    """None where the chain cannot be saved; the draft then has the errors."""
    by, tool = actor_of(request.caller), draft.tool
    if tool is None:
        return register_tool(
            organization=request.user.organization, definition=draft.read.raw, by=by
        )
    assert tool.version is not None
    if draft.read.raw.get("name") != tool.name:
        draft.flaws.append(Remark(None, "name", RENAMED.format(name=tool.name)))
        return None
    if tool.version.digest != draft.digest:
        draft.flaws.append(Remark(None, "", CHANGED))
        return None
    return update_tool(tool=tool, definition=draft.read.raw, by=by)


def _render_form(request: PageRequest, draft: ChainDraft, *, status: int = 200) -> HttpResponse:
    if request.method != "POST":
        draft.read = read_text(request.user.organization, draft.text)
    return render(request, FORM, {"draft": draft, "tool": draft.tool}, status=status)


def _chain_line(
    tool: CatalogTool, parameters: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any]:
    return found | {
        "tool_name": tool.name,
        "words": "is the chain itself",
        "shown": truncate(pretty(parameters)),
        "flaws": found["errors"],
    }


def _step_line(line: dict[str, Any]) -> dict[str, Any]:
    many = "" if line["items"] is None else f", {line['items']} times"
    return line | {
        "words": f"{_RUN_WORDS[line['runs']]}{many}",
        "shown": truncate(pretty(line["parameters"])),
        "flaws": line["errors"],
    }
