"""One list of gates: admission, claim, explanation, draft runs, reads of the workspace and what-if
ask every gate that they do not name as skipped, and the gates themselves read nothing."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import pytest

from tests import factories
from tools.accounts.callers import caller_of_agent, caller_of_user
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.errors import Refused
from tools.execution import accept, claim
from tools.execution.admit import admit
from tools.insight import draft_run, explain, tool_reach, workspace_reads
from tools.insight.explain import Explanation
from tools.insight.replay import Combination, World
from tools.insight.tool_reach import CallerToolReach, reaches
from tools.licensing.tool_kinds import kinds_in
from tools.models import Agent, Organization
from tools.policy import gates
from tools.policy.gates import GateCheck, Scope, Stage
from tools.policy.questions import EffectiveRequest, Gate, Question, Verdict

SOURCE = "def main(parameters):\n    return {}\n"
NAMES = [
    "nesting", "accountable", "load", "fan_out", "standing", "granted_groups", "status",
    "source_open", "group", "group_open", "state", "delivery", "object_permission",
    "required_permissions", "license", "sandbox_profile", "isolation_license", "isolation",
    "network", "rate", "validate_arguments", "budget", "confirmation",
]  # fmt: skip
SKIPPED = {
    "admission": accept.SKIPPED,
    "claim": claim.SKIPPED,
    "explanation": explain.SKIPPED,
    "draft run": draft_run.SKIPPED_GATES,
    "workspace read": workspace_reads.SKIPPED_GATES,
    "what-if": tool_reach.SKIPPED,
}
pytestmark = pytest.mark.django_db


def test_every_gate_is_in_the_list_once_and_keeps_its_name() -> None:
    assert [check.name for check in gates.GATES] == NAMES == list(Gate)


def test_the_list_is_in_the_order_of_the_stages() -> None:
    stages = [check.stage for check in gates.GATES]
    assert stages == sorted(stages, key=list(Stage).index)


@pytest.mark.parametrize("user", SKIPPED)
def test_a_skipped_gate_has_a_reason(user: str) -> None:
    assert all(len(reason) > 20 for reason in SKIPPED[user].values())


def test_gates_read_no_database_and_no_clock() -> None:
    forbidden = ("django", "psycopg", "redis", "celery", "tools.models", "tools.catalog")
    program = (
        "import sys, tools.policy.gates\n"
        f"print([name for name in {forbidden!r} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


# Who walks the list -------------------------------------------------------------------------------


class Walkers:
    """Each method asks the gates about one tool; true where none refused with `added`."""

    def __init__(self, organization: Organization, agent: Agent) -> None:
        self._organization, self._agent = organization, agent
        self._person = factories.superuser(organization)
        self._tool = factories.tool(organization)
        self._accepted = factories.execution(agent)

    def _snapshot(self) -> Snapshot:
        self._organization.refresh_from_db()
        return registry.snapshot(self._organization.pk, self._organization.revision)

    def admission(self) -> bool:
        return _passes(
            lambda: admit(factories.caller(self._agent), factories.call("echo", {"text": "x"}))
        )

    def claim(self) -> bool:
        claimed = claim.claim(self._accepted.pk, "test")
        assert claimed is not None
        return claimed.result is None or claimed.result.error_code != "added"

    def explanation(self) -> bool:
        asked = EffectiveRequest.from_options(None, None)
        about = Explanation(caller_of_agent(self._agent), asked, self._snapshot(), everything=True)
        rows = (*about.request, *about.explain(about.snapshot.tools["echo"]).rows)
        return all(row.code != "added" for row in rows)

    def draft_run(self) -> bool:
        return _passes(
            lambda: draft_run.run_draft(
                caller=caller_of_user(self._person, organization=self._organization),
                organization=self._organization,
                tool=None,
                definition=factories.definition("fresh", parameters=[]),
                parameters={},
                snapshot=self._snapshot(),
            )
        )

    def workspace_read(self) -> bool:
        person = caller_of_user(self._person, organization=self._organization)
        return _passes(
            lambda: workspace_reads.read_workspace(
                caller=person,
                parameters={"path": ".", "what": "listing"},
                asked=EffectiveRequest.from_options(["*"], None),
                snapshot=self._snapshot(),
            )
        )

    def what_if(self) -> bool:
        snapshot, caller = self._snapshot(), caller_of_agent(self._agent)
        tool = snapshot.tools["echo"]
        reached = "echo" in CallerToolReach(kinds_in(snapshot), snapshot).reachable_names(caller)
        assert reached == reaches(caller, tool, snapshot)
        world = World(snapshot, {self._agent.pk: caller}, {"echo"})
        call = Combination(self._agent.pk, "echo", None, "undefined", False, 1, None)
        assert reached == world.passes(call) == (world.refusal(call) is None)
        return reached


def _passes(call: Callable[[], object]) -> bool:
    try:
        call()
    except Refused as refusal:
        if refusal.code != "added":
            raise
        return False
    return True


@pytest.fixture
def walkers(organization: Organization, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Walkers:
    monkeypatch.setattr(workspace_reads, "LONGEST_READ_S", 0.1)
    return Walkers(organization, agent)


class AddedGate(StrEnum):
    ADDED = "added"


def _refuse(question: Question) -> Verdict:
    return Verdict(AddedGate.ADDED, False, "added", "The gate that a test added.")  # type: ignore[arg-type]


WALKS = ("admission", "claim", "explanation", "draft_run", "workspace_read", "what_if")


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("walk", WALKS)
def test_a_gate_that_is_added_is_met(
    walkers: Walkers, monkeypatch: pytest.MonkeyPatch, walk: str, stage: Stage
) -> None:
    added = GateCheck(AddedGate.ADDED, _refuse, stage)  # type: ignore[arg-type]
    monkeypatch.setattr(gates, "GATES", (*gates.GATES, added))
    assert not getattr(walkers, walk)()


@pytest.fixture
def decided_gates(monkeypatch: pytest.MonkeyPatch) -> list[Gate]:
    """The gates that are asked, in their order."""
    names: list[Gate] = []

    def noting(check: GateCheck) -> GateCheck:
        def decide(question: Question) -> Verdict:
            names.append(check.name)
            return check.decide(question)

        return replace(check, decide=decide)

    monkeypatch.setattr(gates, "GATES", tuple(map(noting, gates.GATES)))
    return names


@pytest.mark.parametrize("walk", WALKS)
def test_every_gate_that_is_not_named_as_skipped_is_asked(
    walkers: Walkers, decided_gates: list[Gate], walk: str
) -> None:
    decided_gates.clear()
    assert getattr(walkers, walk)()
    skipped = SKIPPED["what-if" if walk == "what_if" else walk.replace("_", " ")]
    expected = [check.name for check in gates.GATES if check.name not in skipped]
    if walk == "admission":  # it finds out whether an approval is needed before it knows the price
        expected = [*expected[:-2], Gate.CONFIRMATION, Gate.BUDGET]
    if walk in {"explanation", "what_if"}:
        assert set(decided_gates) == set(expected)
    else:
        assert decided_gates == expected


def test_only_a_question_without_a_tool_is_kept_from_gates_of_tools(walkers: Walkers) -> None:
    of_tool = next(check for check in gates.GATES if check.scope == Scope.TOOL)
    with pytest.raises(LookupError, match="is asked about a tool"):
        of_tool.decide_request(None)  # type: ignore[arg-type]
