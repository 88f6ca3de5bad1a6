"""The workflow simulator: a hypothetical walk through the states of a workflow, in which each step
is a call that is supposed to succeed. Every gate is asked as it would be then; nothing runs and
nothing is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.workflow.workflow import leads_to
from tools.definitions.callers import Caller
from tools.insight.explain import Explanation
from tools.policy.questions import EffectiveRequest

MOST_STEPS = 50


@dataclass(frozen=True)
class WorkflowStep:
    """`refusal` is the verdict of the first gate that refuses; the walk ends there then."""

    tool: str
    before: str
    after: str
    refusal: str = ""


@dataclass(frozen=True)
class Walk:
    steps: tuple[WorkflowStep, ...]
    explanation: Explanation  # of its current state

    @property
    def state(self) -> str:
        return self.explanation.asked.state

    @property
    def stopped(self) -> bool:
        return bool(self.steps) and bool(self.steps[-1].refusal)

    @property
    def full(self) -> bool:
        return len(self.steps) >= MOST_STEPS

    def offered(self) -> list[CatalogTool]:
        """What could be called here; what leads to another state comes first."""
        if not self.explanation.allowed:
            return []
        found = filter(self.explanation.available, self.explanation.tools)
        return sorted(found, key=lambda tool: leads_to(tool) in {None, self.state})

    def reason(self, tool: CatalogTool) -> str:
        """The reason of the first refusing gate; empty where none refuses."""
        return refusal_of(self.explanation, tool)


def walked(
    caller: Caller,
    asked: EffectiveRequest,
    names: Sequence[str],
    *,
    snapshot: Snapshot,
    everything: bool,
) -> Walk:
    """From `asked.state` on, as far as the gates allow."""
    steps = tuple(_steps(caller, asked, names[:MOST_STEPS], snapshot, everything))
    state = steps[-1].after if steps else asked.state
    now = EffectiveRequest(asked.groups, state)
    return Walk(steps, Explanation(caller, now, snapshot, everything))


def refusal_of(explanation: Explanation, tool: CatalogTool) -> str:
    rows = (*explanation.request, *explanation.gates_of(tool))
    return next((row.reason for row in rows if not row.passed), "")


def _steps(
    caller: Caller,
    asked: EffectiveRequest,
    names: Sequence[str],
    snapshot: Snapshot,
    everything: bool,
) -> Iterator[WorkflowStep]:
    state = asked.state
    for name in names:
        explanation = Explanation(
            caller, EffectiveRequest(asked.groups, state), snapshot, everything
        )
        tool = snapshot.tool(name)
        if tool is None or not explanation.reader.may_know(tool):
            yield WorkflowStep(name, state, state, "There is no such tool here.")
            return
        refusal = refusal_of(explanation, tool)
        after = state if refusal else leads_to(tool) or state
        yield WorkflowStep(name, state, after, refusal)
        if refusal:
            return
        state = after
