"""Property test: whatever a model replies and whatever changes meanwhile, an agent never executes a
call that `explain` does not show as passed."""

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from audit.models import AuditRecord
from tests import factories
from tests.properties import examples
from tests.stubs.llm import Native, calls
from tests.tools.agents.attacked_organization import refused_by
from tests.tools.agents.conftest import SAYS, begin_request
from tests.tools.approval_requests import approve, approver, reject
from tools.accounts import account_actions
from tools.catalog import actions as catalog
from tools.definitions.results import OPEN, REFUSED
from tools.execution import answer
from tools.execution.perform import perform
from tools.models import Agent, Confirmation, Execution, Organization, Session, Tool, queue
from tools.workflows import session_actions

pytestmark = [pytest.mark.usefixtures("without_workers"), pytest.mark.timeout(300)]
STATES = ("undefined", "s1")
TOOLS = 4
NUMBERS = count(1)
RIGHT = '{"text": "x"}'
AGREED, REFUSED_BY_PERSON = "a yes", "a no"
CHANGES = (
    "groups", "no groups", "disabled", "enabled", "closed", "suspended", "back", "cancelled",
    AGREED, REFUSED_BY_PERSON,
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One tool of a generated catalog."""

    group: str
    states: tuple[str, ...]
    leads_to: str | None
    held: bool
    works: bool


BROKEN = Kind("a", STATES, None, held=False, works=False)  # random generation may omit one like it


@dataclass(frozen=True)
class Said:
    """One reply of the generated script; `tool` may exceed the catalog, for names of no tool."""

    tool: int
    arguments: str
    manner: str


kinds = st.builds(
    Kind,
    group=st.sampled_from(["a", "a", "b"]),
    states=st.sampled_from([STATES, *((one,) for one in STATES)]),
    leads_to=st.sampled_from([None, *STATES]),
    held=st.sampled_from([False, False, True]),
    works=st.sampled_from([True, True, False]),
)
replies = st.builds(
    Said,
    tool=st.integers(0, TOOLS - 1) | st.integers(0, TOOLS - 1) | st.integers(0, TOOLS + 3),
    arguments=st.sampled_from([*[RIGHT] * 8, "{}", "[]", "no", '{"text": 1}']),
    manner=st.sampled_from(
        [*["plain"] * 4, *["through"] * 2, "twice", "made up", "bare", "answer"]
    ),
)
changes = st.dictionaries(st.integers(1, 12), st.sampled_from(CHANGES), max_size=3)


@dataclass
class World:
    """One example with its own tools, groups and agent, in an organization that all examples
    share."""

    organization: Organization
    kinds: list[Kind]
    number: int = field(default_factory=lambda: next(NUMBERS))
    agreed: set[Any] = field(default_factory=set)
    admitted: set[Any] = field(default_factory=set)
    began: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tools = [self._tool(at, kind) for at, kind in enumerate(self.kinds)]
        self.agent = factories.agent(self.organization, groups=[*self.groups, "composition"])
        self.person = approver(self.organization)

    @property
    def groups(self) -> list[str]:
        """The group `b` is never requested."""
        return [f"g{self.number}-a"]

    def _tool(self, at: int, kind: Kind) -> Tool:
        source = SAYS if kind.works else "def main(p):\n    raise ValueError('no')\n"
        return factories.tool(
            self.organization,
            self.name(at),
            group=[f"g{self.number}-{kind.group}"],
            available_in_states=[*kind.states],
            state=kind.leads_to,
            requires_confirmation=kind.held,
            implementation={"source": source},
        )

    def name(self, at: int) -> str:
        beyond = ["run_agent", "ask_model", "no.such", "T1"]
        return f"t{self.number}-{at}" if at < TOOLS else beyond[at - TOOLS]

    def reply(self, said: Said, *, native: bool) -> Native | str:
        name, arguments = self.name(said.tool), said.arguments
        if said.manner == "answer":
            return "Done." if native else "Answer: Done."
        if said.manner == "through":
            inner = {"tool_name": name, "parameters": {"text": "x"}}
            name, arguments = "call_tool", json.dumps(inner)
        if native:
            return calls(name, "" if said.manner == "bare" else arguments)
        action = f"Thought: hm\nAction: {name}"
        return {
            "bare": action,
            "twice": f"{action}\nArguments: {arguments}\n{action}\nArguments: {arguments}",
            "made up": f"{action}\nArguments: {arguments}\nObservation: ok\nAnswer: Done.",
        }.get(said.manner, f"{action}\nArguments: {arguments}")

    def change(self, what: str, run: Execution) -> None:
        by = factories.actor(self.organization)
        agent = Agent.objects.get(pk=self.agent.pk)
        if what in ("groups", "no groups"):
            held = [*self.groups, "composition"] if what == "groups" else ["composition"]
            account_actions.set_grants(agent=agent, groups=held, by=by)
        elif what in ("disabled", "enabled"):
            tool = Tool.objects.get(pk=self.tools[0].pk)
            catalog.set_enabled(tool=tool, enabled=what == "enabled", by=by)
        elif what in ("suspended", "back"):
            account_actions.change_agent(agent=agent, by=by, active=what == "back")
        elif what == "closed":
            for session in Session.objects.filter(agent=agent).open():
                session_actions.close_open_session(
                    Session.objects.filter(pk=session.pk), by, reason="asked"
                )
        elif what in (AGREED, REFUSED_BY_PERSON):
            self._decide(agree=what == AGREED)
        elif not Execution.objects.get(pk=run.pk).is_final:
            answer.cancel_execution(run.pk, by=by)

    def _decide(self, *, agree: bool) -> None:
        waiting = Confirmation.objects.filter(execution__agent=self.agent, status="pending")
        for one in waiting:
            if agree:
                approve(one, self.person)
                self.agreed.add(one.execution_id)
            else:
                reject(one, self.person)

    def perform(self, run: Execution, changing: dict[int, str]) -> None:
        """Perform until nothing is left to do. After each performance the new calls are checked
        against the gates as they were during it, because changes occur only between two of them."""
        self.admitted.add(run.pk)
        for turn in range(1, 400):
            if turn in changing:
                self.change(changing[turn], run)
            waiting = queue.next_of_organization(self.organization.pk)
            if not waiting and turn > max(changing, default=0):
                return
            state = self.state()
            if waiting:
                perform(waiting[0])
            self.check(state)
        raise AssertionError("it never comes to rest")

    def state(self) -> str | None:
        session = Session.objects.filter(agent=self.agent).first()
        return session.state if session else None

    def check(self, state: str | None) -> None:
        rows = {row.pk: row for row in Execution.objects.filter(agent=self.agent)}
        started = AuditRecord.objects.filter(execution_id__in=rows, code="TOOL.START")
        for pk in {*started.values_list("execution_id", flat=True)} - self.began:
            self.began.add(pk)
            self.check_one(rows[pk], state)
            assert not self.awaits_approval(rows[pk]) or pk in self.agreed
        for pk, row in rows.items():
            if pk not in self.admitted and (row.status in OPEN or row.status not in REFUSED):
                self.check_one(row, state)
            self.admitted.add(pk)

    def check_one(self, row: Execution, state: str | None) -> None:
        assert refused_by(row) == [], (row.tool_name, row.status)
        if state is not None and row.session_id is not None and row.place.startswith("act/"):
            assert row.state == state

    def awaits_approval(self, row: Execution) -> bool:
        names = {self.name(at): kind.held for at, kind in enumerate(self.kinds)}
        return names.get(row.tool_name, False)


@pytest.mark.part("agents")
@examples(12, 40)
def test_no_script_makes_an_agent_execute_what_explain_does_not_show_as_passed(
    organization, model, settings_of_the_form, max_examples
):
    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],  # no shrinking: each example takes seconds
        suppress_health_check=[*HealthCheck],
    )
    @given(
        catalog=st.lists(kinds, min_size=TOOLS, max_size=TOOLS),
        script=st.lists(replies, min_size=2, max_size=7),
        changing=changes,
        native=st.booleans(),
    )
    @example(catalog=[BROKEN] * TOOLS, script=[Said(0, RIGHT, "plain")], changing={}, native=True)
    def hold(catalog, script, changing, native):
        settings_of_the_form(native)
        world = World(organization, catalog)
        left = [world.reply(said, native=native) for said in script]
        model.answers_by(
            lambda _: left.pop(0) if left else ("Done." if native else "Answer: Done.")
        )
        run = begin_request(world.agent, group=[*world.groups, "composition"], max_iterations=8)
        world.perform(run, changing)
        assert not Execution.objects.filter(agent=world.agent, status="Running").exists()
        # Close open confirmations, so that the next script begins without any.
        world.change("cancelled", Execution.objects.filter(agent=world.agent, parent=None).get())
        world.perform(Execution.objects.filter(agent=world.agent, parent=None).get(), {})

    hold()
    made = Execution.objects.filter(organization=organization, tool_name__startswith="t")
    ends = set(made.values_list("status", flat=True))
    assert {"Success", "Failed", "PermissionDenied"} <= ends  # the scripts do reach the gates


@pytest.fixture
def settings_of_the_form(settings):
    def set_form(native: bool) -> None:
        settings.LLM_TOOL_CALLS = native

    return set_form
