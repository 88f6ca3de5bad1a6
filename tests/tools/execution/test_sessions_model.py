"""Property test of sessions: calls, ends, revocations and closing in any order leave them in the
state of a plain model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests import factories
from tests.properties import examples, of_machine
from tools.accounts import account_actions as policy
from tools.accounts.callers import caller_of_agent
from tools.definitions.results import OPEN
from tools.errors import Conflict, Refused
from tools.execution import answer
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.models import Execution, Session, StateTransition
from tools.workflows import session_actions

pytestmark = pytest.mark.usefixtures("committed")
GROUPS = ("knowledge", "compute")
# Name, group, the required state, the state it leads to, whether it succeeds.
TOOLS = (
    ("query", "knowledge", "undefined", "analysis", True),
    ("analyse", "compute", "analysis", "results", True),
    ("reset", "knowledge", "results", "undefined", True),
    ("broken", "knowledge", "analysis", "nowhere", False),
)
BROKEN = {"source": "def main(parameters):\n    raise ValueError('no')\n"}


@dataclass
class Model:
    """The expected state of a session."""

    groups: frozenset[str]
    state: str = "undefined"
    closed: bool = False
    waiting: tuple[Execution, tuple] | None = None
    path: list[tuple[str, str]] = field(default_factory=list)

    def refusal(self, tool, granted) -> str | None:
        _, group, needed, _, _ = tool
        if self.closed:
            return "session_closed"
        if self.waiting:
            return "session_busy"
        if not self.groups <= granted:
            return "group_not_granted"
        if group not in self.groups:
            return "tool_not_in_group"
        return None if needed == self.state else "tool_not_in_state"

    def ending(self, tool, granted) -> str:
        if not self.groups <= granted:
            return "group_not_granted"
        if self.closed:
            return "session_closed"
        return "Success" if tool[4] else "TOOL_ERROR"

    def move(self, after: str) -> None:
        self.path.append((self.state, after))
        self.state = after


def machine(organization):
    for name, group, needed, leads_to, works in TOOLS:
        source = {} if works else {"implementation": BROKEN}
        factories.tool(
            organization,
            name,
            group=[group],
            state=leads_to,
            available_in_states=[needed],
            **source,
        )

    class Sessions(RuleBasedStateMachine):
        models = Bundle("models")

        def __init__(self):
            super().__init__()
            self.agent = factories.agent(organization, groups=[*GROUPS])
            self.granted = frozenset(GROUPS)
            self.known: dict = {}

        @property
        def caller(self):
            return caller_of_agent(self.agent)

        @rule(target=models, groups=st.sets(st.sampled_from(GROUPS)))
        def open(self, groups):
            if not groups <= self.granted:
                with pytest.raises(Refused):
                    self._opened(groups)
                return multiple()
            session = self._opened(groups)
            self.known[session.pk] = Model(frozenset(groups))
            return session.pk

        def _opened(self, groups):
            return session_actions.open_session(
                caller=self.caller, group=sorted(groups), state=None
            )[0]

        @rule(pk=models, tool=st.sampled_from(TOOLS), ends=st.booleans())
        def call(self, pk, tool, ends):
            model = self.known[pk]
            refusal = model.refusal(tool, self.granted)
            call = factories.call(tool[0], {"text": "x"}, session=str(pk))
            if refusal is None:
                model.waiting = (admit(self.caller, call), tool)
                if ends:
                    self.run(pk)
                return
            with pytest.raises((Refused, Conflict)) as refused:
                admit(self.caller, call)
            assert refused.value.code == refusal

        @rule(pk=models)
        def run(self, pk):
            model = self.known[pk]
            if model.waiting is None:
                return
            (execution, tool), model.waiting = model.waiting, None
            perform(execution.pk)
            row = Execution.objects.get(pk=execution.pk)
            ending = model.ending(tool, self.granted)
            assert ending in (row.status, row.error_code)
            if ending == "Success":
                model.move(tool[3])

        @rule(pk=models)
        def cancel(self, pk):
            model = self.known[pk]
            if model.waiting is not None:
                answer.cancel(caller=self.caller, execution=model.waiting[0])
                model.waiting = None

        @rule(pk=models, state=st.sampled_from(["undefined", "analysis", "made up"]))
        def lie(self, pk, state):
            model = self.known[pk]
            if model.closed or state == model.state:
                return
            call = factories.call("query", {"text": "x"}, session=str(pk), state=state)
            with pytest.raises(Conflict) as refused:
                admit(self.caller, call)
            assert refused.value.code == "session_mismatch"

        @rule(pk=consumes(models))
        def close(self, pk):
            session_actions.close_session(caller=self.caller, session=Session.objects.get(pk=pk))
            self.known[pk].closed = True
            self.run(pk)

        @rule(groups=st.sets(st.sampled_from(GROUPS)))
        def grant(self, groups):
            policy.set_grants(agent=self.agent, groups=[*groups], by=factories.actor(organization))
            self.granted = frozenset(groups)

        @invariant()
        def the_rows_say_what_the_model_says(self):
            rows = {row.pk: row for row in Session.objects.filter(agent=self.agent)}
            assert set(rows) == set(self.known)
            for pk, model in self.known.items():
                row = rows[pk]
                assert (row.state, row.closed_at is not None) == (model.state, model.closed)
                moves = StateTransition.objects.filter(session=pk).order_by("pk")
                assert [*moves.values_list("from_state", "to_state")] == model.path
                open_now = Execution.objects.filter(session=pk, status__in=OPEN).count()
                assert open_now == (model.waiting is not None)

    return Sessions


@examples(4, 15)
def test_sessions_agree_with_the_model(organization, max_examples):
    run_state_machine_as_test(machine(organization), settings=of_machine(max_examples, 20))
