"""`/editor/`: create and edit tools, and run drafts as a test. Arguments are added, moved and
removed here.
"""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from tools.catalog.actions import find_tool
from tools.catalog.signatures.version_signatures import check_current
from tools.definitions.implementations.tool_types import READERS
from tools.definitions.tool import ordered_definition
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, ToolcribError
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
from tools.ui.editor.tool_drafts import STEPS, ToolForm
from tools.web.forms import Renderer
from tools.web.one_time import done_here
from tools.web.pages import PageRequest, form_page, snapshot_of
from tools.web.reauthentication import Proof

TEMPLATE = "editor/editor.html"
_EXAMPLES: dict[str, Any] = {
    "string": "", "integer": 0, "number": 0.5, "boolean": True, "array": [], "object": {},
}  # fmt: skip


@form_page(Proof.NOT_NEEDED, "add_tool")
def create_tool(request: PageRequest) -> HttpResponseBase:
    kind = (request.POST if request.method == "POST" else request.GET).get("type", "")
    if kind == ToolType.CHAIN:
        return redirect("chain-new")
    known = kind in READERS and kind != ToolType.BUILTIN
    return _handle_form(ToolForm(request, None, kind if known else ToolType.CODE))


@form_page(Proof.NOT_NEEDED, "change_tool")
def change_tool(request: PageRequest, name: str) -> HttpResponseBase:
    tool = find_tool(request.user.organization, name)
    check_current(tool)
    if tool.type == ToolType.BUILTIN:
        raise Conflict(
            "A built-in tool is configured in Administration, not written here.",
            code="tool_is_builtin",
        )
    if tool.type == ToolType.CHAIN:
        return redirect("chain-edit", name=tool.name)
    return _handle_form(ToolForm(request, tool, tool.type))


class DraftTestForm(forms.Form):
    """The parameters of a test run."""

    default_renderer = Renderer
    parameters = forms.CharField(
        label="Parameters",
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 8, "class": "mono", "spellcheck": "false"}),
        help_text="One JSON object. Nothing of it is kept here.",
    )

    def clean_parameters(self) -> dict[str, Any]:
        try:
            parameters = strict_json.parse(self.cleaned_data["parameters"] or "{}")
        except strict_json.BadJson as error:
            raise ValidationError(f"This is not JSON that can be used: {error}.") from None
        if not isinstance(parameters, dict):
            raise ValidationError('Give one JSON object, such as {"path": "notes"}.')
        return parameters


@dataclass
class DraftTest:
    """The input of a test run, and its result."""

    __test__ = False

    form: DraftTestForm
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


def read_test(form: ToolForm) -> DraftTest | None:
    """What is typed to test a draft with, which is read when the draft is run."""
    if form.kind != ToolType.CODE:
        return None
    sent, key = form.request.POST, "test-parameters"
    stored = form.row.version.definition if form.row and form.row.version else {}
    typed = {"parameters": sent.get(key, pretty(_example(stored)))}
    data = sent if form.do == "test" and key in sent else None
    return DraftTest(DraftTestForm(data, initial=typed, prefix="test", auto_id="i-%s"))


def run_test(form: ToolForm, test: DraftTest) -> None:
    """Run the draft in the sandbox and fill in the result, or the refusal. Saves nothing."""
    if not test.form.is_valid():
        return
    request = form.request
    try:
        test.ran = run_draft(
            caller=request.caller,
            organization=request.user.organization,
            tool=form.row,
            definition=form.definition(),
            parameters=test.form.cleaned_data["parameters"],
            snapshot=snapshot_of(request),
        )
    except ToolcribError as refusal:
        test.refusal = refusal


def _example(definition: dict[str, Any]) -> dict[str, Any]:
    """The required arguments, as a template to fill in."""
    asked = [one for one in definition.get("parameters", []) if one["required"]]
    return {one["name"]: _example_value(one) for one in asked}


def _example_value(parameter: dict[str, Any]) -> Any:
    if parameter["default"] is not None:
        return parameter["default"]
    return (parameter["enum"] or [_EXAMPLES[parameter["type"].lower()]])[0]


def _handle_form(form: ToolForm) -> HttpResponseBase:
    if not form.is_bound:
        return _show(form)
    if form.do == "check":
        form.check_while_typing()
        return form.show(f"{TEMPLATE}#checked", {"from_table": form.at == "table"})
    if form.do in STEPS and not (form.text.torn or form.text.error):
        form.take_step()
        return _show(form)
    if form.do in STEPS | {"test"}:
        test = read_test(form)
        if form.with_values(lambda _: True) and test and not form.request.repeated:
            run_test(form, test)
        shown = _show(form, test=test)
        return done_here(shown) if test and test.ran else shown
    if form.do == "compare":
        return _show(form, lines=form.with_values(lambda _: _compare(form)))
    if not form.save():
        return _show(form)
    saved = form.result or form.row
    assert isinstance(saved, Tool)
    label = saved.version.label if saved.version else ""
    said = f"Version {label} of {saved.name} holds from the next call."
    return form.redirect(said, "tool", name=saved.name)


def _compare(form: ToolForm) -> list[DiffLine] | None:
    before = form.stored_definition if form.row else None
    return diff_definitions(before, ordered_definition(form.canonical))


def _show(
    form: ToolForm, *, lines: list[DiffLine] | None = None, test: DraftTest | None = None
) -> HttpResponse:
    """The page; for htmx the form, also where it was refused."""
    in_page = form.request.htmx and form.request.method == "POST"
    context = {
        "tool": form.row,
        "types": [kind for kind in READERS if kind != ToolType.BUILTIN],
        "lines": lines,
        "compared": lines is not None,
        "test": test or read_test(form),
    }
    response = form.show(f"{TEMPLATE}#form" if in_page else TEMPLATE, context)
    if in_page and form.status != 200:
        response["HX-Retarget"] = "#editor"
    return response
