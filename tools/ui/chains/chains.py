"""`/chains/`: the list of chains, their editor, and their dry run. Each chain is a tool and has a
tool's page.
"""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse_lazy

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
from tools.errors import Conflict, NotFound, ToolcribError
from tools.models import Tool
from tools.policy.questions import EffectiveRequest
from tools.ui.chains.chain_drawing import ChainDrawing, draw_chain, inputs_of
from tools.ui.display import pretty, truncate
from tools.web.forms import ActionForm
from tools.web.listing import Column, Filters, Listing, search_field
from tools.web.pages import PageRequest, action_page, form_page, page, snapshot_of
from tools.web.reauthentication import Proof
from tools.workflows.chain_dry_run import dry_run

LIST, FORM = "chains/chains.html", "chains/chain_form.html"
NOT_A_CHAIN = "See what stands beside the text."
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


class ChainForm(ActionForm):
    """A chain as text, with what was found in it."""

    row: Tool | None
    text = forms.CharField(
        label="The chain",
        strip=False,
        required=False,
        initial=EXAMPLE,
        widget=forms.Textarea({
            "class": "mono", "rows": 30, "spellcheck": "false", "autocapitalize": "off",
            "wrap": "off", "aria-describedby": "i-text_helptext i-text_error draft-findings",
            "hx-post": reverse_lazy("chain-check"), "hx-trigger": "input changed delay:500ms",
            "hx-target": "#checked", "hx-swap": "outerHTML", "hx-sync": "this:replace",
            "hx-include": "closest form",
        }),
    )  # fmt: skip

    def __init__(self, request: PageRequest, row: Tool | None = None) -> None:
        super().__init__(request, row)
        if not self.is_bound:
            self.read = read_text(request.user.organization, self["text"].value())

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None and self.row.version is not None
        return {"text": text_of(self.row.version.definition)}

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"].replace("\r\n", "\n")
        self.read = read_text(self.request.user.organization, text)
        if self.read.definition is None:
            raise ValidationError(NOT_A_CHAIN)
        return text

    def act(self, changes: dict[str, Any]) -> Tool | None:
        by, definition = actor_of(self.request.caller), self.read.raw
        if self.row is None:
            organization = self.request.user.organization
            return register_tool(organization=organization, definition=definition, by=by)
        if definition.get("name") != self.row.name:
            raise Conflict(RENAMED.format(name=self.row.name))
        before = self.row.version_id
        saved = update_tool(tool=self.row, definition=definition, by=by)
        return saved if saved.version_id != before else None

    def place_refusal(self, refusal: ToolcribError) -> None:
        self.read.flaws.append(Remark(None, "", refusal.message))
        self.add_error("text", NOT_A_CHAIN)


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


@page()
def chain_list(request: PageRequest) -> HttpResponseBase:
    return ChainListing(request).respond()


@form_page(Proof.NOT_NEEDED, "add_tool")
def create_chain(request: PageRequest) -> HttpResponseBase:
    return _handle_form(ChainForm(request))


@form_page(Proof.NOT_NEEDED, "change_tool")
def change_chain(request: PageRequest, name: str) -> HttpResponseBase:
    """Save a new version. Open runs continue with their version."""
    tool = find_tool(request.user.organization, name)
    if tool.type != ToolType.CHAIN:
        raise NotFound(f"There is no chain {name[:128]!r}.", code="chain_not_found")
    check_current(tool)
    return _handle_form(ChainForm(request, tool))


@action_page(Proof.NOT_NEEDED)
def check_text(request: PageRequest) -> HttpResponse:
    """The errors of a text while it is edited, and its drawing. Saves nothing."""
    if not may(request.caller, "change_tool"):
        require(request.caller, "add_tool")
    text = request.POST.get("text", "").replace("\r\n", "\n")
    read = read_text(request.user.organization, text)
    return render(request, f"{FORM}#checked", _findings(read))


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


def _handle_form(form: ChainForm) -> HttpResponseBase:
    if not form.save():
        return form.show(FORM, {"tool": form.row} | _findings(form.read))
    name = form.read.raw["name"]
    return form.redirect(f"{name} is saved. Try it under Call.", "tool", name=name)


def _findings(read: ChainText) -> dict[str, Any]:
    """The errors of a text and its drawing."""
    drawing = draw_definition(read.definition) if read.definition else None
    return {"read": read, "drawing": drawing}


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
