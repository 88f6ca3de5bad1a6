"""The try-it form of a tool: the submitted call and its result."""

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.errors import ToolcribError
from tools.models import Execution
from tools.policy.decision import DEFAULT_STATE
from tools.ui.playground.calling import default_groups, default_state
from tools.ui.playground.call_form import ParameterForm, parameter_form


@dataclass
class PlaygroundAttempt:
    """The try-it form, and the result of its call."""

    form: ParameterForm
    groups: list[str]
    offered: list[str]
    state: str
    states: list[str]
    execution: dict[str, Any] | None = None
    rehearsal: list[dict[str, Any]] | None = None
    refusal: ToolcribError | None = None
    flaws: list[dict[str, str]] = field(default_factory=list)
    other: str = ""

    @property
    def asked(self) -> list[str]:
        other = [self.other] if self.other and self.other not in self.groups else []
        return self.groups + other

    def fill(self, data: QueryDict) -> None:
        self.form.fill({name: str(data[name]) for name in data})
        self.groups = [_clean_name(name) for name in data.getlist("group")]
        self.other = _clean_name(data.get("other_group", ""))
        self.state = _clean_name(data.get("state", "")) or DEFAULT_STATE

    def refused(self, refusal: ToolcribError) -> Execution | None:
        """Set the refusal, with each error at its field; returns the refused execution."""
        self.refusal = refusal
        self.flaws = self.form.place(refusal.details.get("errors") or [])
        recorded = refusal.details.get("execution_id")
        return Execution.objects.filter(pk=recorded).first() if recorded else None


def new_attempt(tool: CatalogTool, caller: Caller, snapshot: Snapshot) -> PlaygroundAttempt:
    """A form with the defaults, and with the usual groups and state of the caller."""
    effective = sorted(snapshot.groups_of(tool))
    states = sorted(tool.definition.states - {WILDCARD})
    groups = default_groups(tool, caller, snapshot)
    others = caller.granted_groups.union(groups).difference(effective)
    return PlaygroundAttempt(
        form=parameter_form(tool.definition.raw),
        groups=groups,
        offered=effective + sorted(others),
        state=default_state(tool),
        states=states or [DEFAULT_STATE],
    )


def _clean_name(name: str) -> str:
    return name.strip()[:100]
