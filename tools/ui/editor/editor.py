"""`/editor/`: create and edit tools, and run drafts as a test. Arguments are added, moved and
removed here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.actions import find_tool, register_tool, update_tool
from tools.catalog.signatures.version_signatures import check_current
from tools.definitions.implementations.tool_types import READERS
from tools.definitions.tool import Definition, ordered_definition, read_definition
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, InvalidDefinition, ToolcribError
from tools.insight.draft_run import DraftRun, run_draft
from tools.models import Tool
from tools.ui.display import (
    DiffLine,
    diff_definitions,
    format_duration,
    output_text,
    pretty,
    truncate,
)
from tools.ui.editor.argument_table import MOVES, NotAsTable, arrange_rows, rows_from_schema
from tools.ui.editor.argument_text import synchronize, write_as, write_text
from tools.ui.editor.tool_drafts import ToolDraft, definition_from, draft_from, draft_of, new_draft
from tools.ui.inputs import FormInput, Widget, form_values, parse_json_input
from tools.web.one_time import done_here
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof, proof

PARAMETERS_KEY = "test-parameters"
TEMPLATE = "editor/editor.html"
CHANGED = (
    "Somebody changed the tool while you wrote. What you wrote is still here: open the tool in"
    " another window, carry over what is missing, and save again."
)
_EXAMPLES: dict[str, Any] = {
    "string": "", "integer": 0, "number": 0.5, "boolean": True, "array": [], "object": {},
}  # fmt: skip


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def create_tool(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_tool")
    if request.method == "GET":
        kind = request.GET.get("type", "")
        if kind == ToolType.CHAIN:
            return redirect("chain-new")
        known = kind in READERS and kind != ToolType.BUILTIN
        return _render_editor(request, new_draft(kind if known else ToolType.CODE), None)
    return _handle_form(request, draft_from(form_values(request.POST), None), None)


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_tool(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_tool")
    tool = find_tool(request.user.organization, name)
    check_current(tool)
    assert tool.version is not None
    definition = ordered_definition(tool.version.definition)
    if tool.type == ToolType.BUILTIN:
        raise Conflict(
            "A built-in tool is configured in Administration, not written here.",
            code="tool_is_builtin",
        )
    if tool.type == ToolType.CHAIN:
        return redirect("chain-edit", name=tool.name)
    if request.method == "GET":
        return _render_editor(request, draft_of(definition, tool.version.digest), tool)
    return _handle_form(request, draft_from(form_values(request.POST), definition), tool)


def _parameters_input() -> FormInput:
    return FormInput(
        PARAMETERS_KEY, "Parameters", Widget.CODE, "One JSON object. Nothing of it is kept here."
    )


@dataclass
class DraftTest:
    """The input of a test run, and its result."""

    __test__ = False

    input: FormInput = field(default_factory=_parameters_input)
    ran: DraftRun | None = None
    refusal: ToolcribError | None = None

    @property
    def flaws(self) -> list[dict[str, Any]]:
        return list(self.refusal.details.get("errors") or []) if self.refusal else []

    @property
    def output(self) -> str:
        return output_text(self.ran.result.status, self.ran.result.output) if self.ran else ""

    @property
    def streams(self) -> list[tuple[str, str]]:
        ran = self.ran
        streams = (("stdout", ran.stdout), ("stderr", ran.stderr)) if ran else ()
        return [(name, truncate(text)) for name, text in streams if text]

    @property
    def facts(self) -> list[tuple[str, str]]:
        if self.ran is None:
            return []
        metrics = self.ran.result.metrics
        memory = metrics.get("peak_memory_bytes")
        return [
            ("Took", format_duration(self.ran.duration_ms)),
            ("Processor", format_duration(metrics.get("cpu_time_ms"))),
            ("Memory at most", "–" if memory is None else f"{memory / 1024 / 1024:.1f} MiB"),
            ("Requests", str(metrics.get("network_requests") or 0)),
            ("Isolation", str(self.ran.level)),
            ("Would be stopped after", f"{self.ran.timeout_s:g} s"),
        ]


def read_test(data: Mapping[str, str], definition: dict[str, Any] | None = None) -> DraftTest:
    test = DraftTest()
    test.input.value = data.get(PARAMETERS_KEY, "").replace("\r\n", "\n")
    if PARAMETERS_KEY not in data:
        test.input.value = pretty(_example(definition or {}))
    return test


def run_test(
    request: PageRequest, test: DraftTest, definition: dict[str, Any], tool: Tool | None
) -> None:
    """Run the draft and fill in the result, or the refusal."""
    try:
        parameters = _parameters(test.input)
        if test.input.errors:
            return
        test.ran = run_draft(
            caller=request.caller,
            organization=request.user.organization,
            tool=tool,
            definition=definition,
            parameters=parameters,
            snapshot=snapshot_of(request),
        )
    except ToolcribError as refusal:
        test.refusal = refusal


def _parameters(asked: FormInput) -> dict[str, Any]:
    try:
        parameters = strict_json.parse(asked.value or "{}")
    except strict_json.BadJson as error:
        asked.errors.append(f"This is not JSON that can be used: {error}.")
        return {}
    if not isinstance(parameters, dict):
        asked.errors.append('Give one JSON object, such as {"path": "notes"}.')
        return {}
    return parameters


def _example(definition: dict[str, Any]) -> dict[str, Any]:
    """The required arguments, as a template to fill in."""
    asked = [one for one in definition.get("parameters", []) if one["required"]]
    return {one["name"]: _example_value(one) for one in asked}


def _example_value(parameter: dict[str, Any]) -> Any:
    if parameter["default"] is not None:
        return parameter["default"]
    return (parameter["enum"] or [_EXAMPLES[parameter["type"].lower()]])[0]


def _handle_form(request: PageRequest, draft: ToolDraft, tool: Tool | None) -> HttpResponseBase:
    data = form_values(request.POST)
    what, _, at = data.get("do", "save").partition(" ")
    synchronize(draft, data, counts=at if what == "take" else "")
    if what == "check":
        return _check_arguments(request, draft, table=at == "table")
    if draft.flawed or what in _STEPS:
        flawed = draft.flawed
        if not flawed:
            _STEPS[what](draft, at)
        return _render_editor(request, draft, tool, status=400 if flawed or draft.flawed else 200)
    definition = definition_from(draft)
    if what == "test":
        return _test_draft(request, draft, definition, tool)
    if what == "compare":
        return _render_editor(request, draft, tool, lines=_compare_draft(draft, definition, tool))
    saved = _read_draft(draft, definition) and _save_tool(request, draft, definition, tool)
    return (
        redirect("tool", name=saved.name)
        if saved
        else _render_editor(request, draft, tool, status=400)
    )


def _test_draft(
    request: PageRequest, draft: ToolDraft, definition: dict[str, Any], tool: Tool | None
) -> HttpResponse:
    """Run the draft in the sandbox, once for each form. Saves nothing."""
    test = read_test(form_values(request.POST))
    if _read_draft(draft, definition) and not request.repeated:
        run_test(request, test, definition, tool)
    shown = _render_editor(request, draft, tool, test=test)
    return done_here(shown) if test.ran else shown


def _arrange(what: str) -> Callable[[ToolDraft, str], None]:
    def step(draft: ToolDraft, at: str) -> None:
        draft.rows = arrange_rows(
            draft.rows, what, int(at) if at.isdecimal() and len(at) < 5 else 0
        )
        write_text(draft)

    return step


def _convert_schema(draft: ToolDraft, _: str) -> None:
    """Convert the input schema to rows, unless the table cannot represent all of it."""
    schema = next(one for one in draft.inputs if one.key == "input_schema")
    try:
        draft.rows = rows_from_schema(parse_json_input(schema, {}))
        schema.value = ""
    except NotAsTable as error:
        schema.errors = schema.errors or [f"A table cannot hold this schema. {error}"]
    write_text(draft)


def _keep_choice(draft: ToolDraft, _: str) -> None:
    """Nothing: the author's choice was applied when the form was read."""


# Actions that change the form and save nothing.
_STEPS: dict[str, Callable[[ToolDraft, str], None]] = {
    **{what: _arrange(what) for what in MOVES},
    "unfold": _convert_schema,
    "write": write_as,
    "take": _keep_choice,
}


def _check_arguments(request: PageRequest, draft: ToolDraft, *, table: bool) -> HttpResponse:
    """Errors of the arguments while they are edited; table and text are synchronized."""
    if not draft.flawed:
        _read_draft(draft, definition_from(draft))
        for row in draft.rows:
            row.forgive_empty()
    draft.flaws = [one for one in draft.flaws if draft.torn or one["field"] == "parameters"]
    context = {"draft": draft, "from_table": table}
    return render(request, f"{TEMPLATE}#checked", context)


def _save_tool(
    request: PageRequest, draft: ToolDraft, definition: dict[str, Any], tool: Tool | None
) -> Tool | None:
    """The saved tool; None where it was refused, with the errors in the draft."""
    by = actor_of(request.caller)
    try:
        if tool is None:
            return register_tool(
                organization=request.user.organization, definition=definition, by=by
            )
        assert tool.version is not None
        if tool.version.digest != draft.digest:
            draft.flaws.append({"field": "", "message": CHANGED})
            return None
        return update_tool(tool=tool, definition=definition, by=by)
    except InvalidDefinition as error:
        flaws = error.field_errors()
        draft.place(flaws)
    except ToolcribError as error:
        draft.flaws.append({"field": "", "message": error.message})
    return None


def _read_draft(draft: ToolDraft, definition: dict[str, Any]) -> Definition | None:
    """None for an invalid definition; each invalid input then has an error."""
    unreadable = draft.flawed
    try:
        canonical = read_definition(definition)
    except InvalidDefinition as error:
        draft.place(error.field_errors())
        return None
    return None if unreadable else canonical


def _compare_draft(
    draft: ToolDraft, definition: dict[str, Any], tool: Tool | None
) -> list[DiffLine] | None:
    canonical = _read_draft(draft, definition)
    before = ordered_definition(tool.version.definition) if tool and tool.version else None
    return diff_definitions(before, ordered_definition(canonical)) if canonical else None


def _render_editor(
    request: PageRequest,
    draft: ToolDraft,
    tool: Tool | None,
    *,
    status: int = 200,
    lines: list[DiffLine] | None = None,
    test: DraftTest | None = None,
) -> HttpResponse:
    if request.method == "GET":
        write_text(draft)
    context = {
        "draft": draft,
        "tool": tool,
        "types": [kind for kind in READERS if kind != ToolType.BUILTIN],
        "lines": lines,
        "compared": lines is not None,
        "test": test or _initial_test(request, draft, tool),
    }
    if request.htmx and request.method == "POST":
        return render(request, f"{TEMPLATE}#form", context)
    return render(request, TEMPLATE, context, status=status)


def _initial_test(request: PageRequest, draft: ToolDraft, tool: Tool | None) -> DraftTest | None:
    if draft.kind != ToolType.CODE:
        return None
    return read_test(
        form_values(request.POST), tool.version.definition if tool and tool.version else {}
    )
