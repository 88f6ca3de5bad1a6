"""The test run of a draft in the editor: its input and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.values import strict_json
from tools.errors import ToolcribError
from tools.execution.draft_run import DraftRun, run_draft
from tools.models import Tool
from tools.ui.access import PageRequest, snapshot_of
from tools.ui.display import cut, milliseconds, output_of, pretty
from tools.ui.inputs import FormInput, Widget

KEY = "test-parameters"
_EXAMPLES: dict[str, Any] = {
    "string": "", "integer": 0, "number": 0.5, "boolean": True, "array": [], "object": {},
}  # fmt: skip


def _asked() -> FormInput:
    return FormInput(KEY, "Parameters", Widget.CODE, "One JSON object. Nothing of it is kept here.")


@dataclass
class Test:
    """The input of a test run, and its result."""

    __test__ = False

    input: FormInput = field(default_factory=_asked)
    ran: DraftRun | None = None
    refusal: ToolcribError | None = None

    @property
    def flaws(self) -> list[dict[str, Any]]:
        return list(self.refusal.details.get("errors") or []) if self.refusal else []

    @property
    def output(self) -> str:
        return output_of(self.ran.result.status, self.ran.result.output) if self.ran else ""

    @property
    def streams(self) -> list[tuple[str, str]]:
        ran = self.ran
        told = (("stdout", ran.stdout), ("stderr", ran.stderr)) if ran else ()
        return [(name, cut(text)) for name, text in told if text]

    @property
    def facts(self) -> list[tuple[str, str]]:
        if self.ran is None:
            return []
        told = self.ran.result.metrics
        memory = told.get("peak_memory_bytes")
        return [
            ("Took", milliseconds(self.ran.duration_ms)),
            ("Processor", milliseconds(told.get("cpu_time_ms"))),
            ("Memory at most", "–" if memory is None else f"{memory / 1024 / 1024:.1f} MiB"),
            ("Requests", str(told.get("network_requests") or 0)),
            ("Isolation", str(self.ran.level)),
            ("Would be stopped after", f"{self.ran.timeout_s:g} s"),
        ]


def asked_of(data: Mapping[str, str], definition: dict[str, Any] | None = None) -> Test:
    test = Test()
    test.input.value = data.get(KEY, "").replace("\r\n", "\n")
    if KEY not in data:
        test.input.value = pretty(_example(definition or {}))
    return test


def run_test(
    request: PageRequest, test: Test, definition: dict[str, Any], tool: Tool | None
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
    return {one["name"]: _value(one) for one in asked}


def _value(parameter: dict[str, Any]) -> Any:
    if parameter["default"] is not None:
        return parameter["default"]
    return (parameter["enum"] or [_EXAMPLES[parameter["type"].lower()]])[0]
