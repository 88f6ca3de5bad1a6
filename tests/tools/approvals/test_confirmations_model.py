"""Property test of approvals: whatever people, time, administrators and attackers do, a call that
starts has enough approvals for its current form, and starts once."""

from dataclasses import dataclass, field

import pytest
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from audit.models import AuditRecord
from tests import factories
from tests.properties import examples, of_machine
from tests.tools.approval_requests import approver, at_the_browser, call_awaiting_approval, word
from tools.accounts import account_actions as policy
from tools.approvals import decisions
from tools.catalog import actions as catalog
from tools.definitions.results import Status
from tools.errors import Conflict
from tools.execution import answer
from tools.execution.call import Result
from tools.execution.claim import claim
from tools.execution.finish import finish
from tools.models import Confirmation, Execution, Token

pytestmark = pytest.mark.django_db

PEOPLE = st.sampled_from([0, 1, 2])
AGENTS = st.sampled_from([0, 1])


@dataclass
class Model:
    """The expected state of a call that requires approval."""

    confirmation: Confirmation
    agent: int
    version: int
    needs: int
    yes: set[int] = field(default_factory=set)
    state: str = "open"  # then approved, then over
    spoilt: bool = False
    cancelled: bool = False  # it may be cancelled again

    @property
    def row(self):
        return Execution.objects.filter(pk=self.confirmation.execution_id)


def machine(organization):
    class Held(RuleBasedStateMachine):
        calls = Bundle("calls")

        def __init__(self):
            super().__init__()
            self.agents = [factories.agent(organization) for _ in range(2)]
            self.people = [approver(organization) for _ in range(3)]
            self.active = [True, True]
            self.version, self.critical = 0, False
            self.name = f"echo-{self.agents[0].slug}"
            factories.tool(organization, self.name, requires_confirmation=True)
            self.known: list[Model] = []
            self.began: set = set()

        @property
        def tool(self):
            return catalog.find_tool(organization, self.name)

        def stale(self, call):
            grown = self.critical and call.needs < 2
            return (
                call.spoilt or grown or call.version != self.version or not self.active[call.agent]
            )

        @rule(target=calls, agent=AGENTS)
        def ask(self, agent):
            if not self.active[agent]:
                return multiple()
            asked = call_awaiting_approval(self.agents[agent], self.name, text="x")
            call = Model(asked, agent, self.version, 2 if self.critical else 1)
            assert asked.approvals_needed == call.needs
            self.known.append(call)
            return call

        @rule(call=calls, person=PEOPLE)
        def agree(self, call, person):
            said = word(call.confirmation)
            if call.state != "open" or person in call.yes or self.stale(call):
                with pytest.raises(Conflict):
                    decisions.decide(caller=at_the_browser(self.people[person]), word=said)
                if call.state == "open" and person not in call.yes:
                    call.state = "over"
                return
            decisions.decide(caller=at_the_browser(self.people[person]), word=said)
            call.yes.add(person)
            if len(call.yes) == call.needs:
                call.state = "approved"

        @rule(call=calls, person=PEOPLE)
        def refuse(self, call, person):
            said = word(call.confirmation, approve=False)
            caller = at_the_browser(self.people[person])
            if call.state != "open" or person in call.yes:
                with pytest.raises(Conflict):
                    decisions.decide(caller=caller, word=said)
                return
            decisions.decide(caller=caller, word=said)
            call.state = "over"

        @rule(call=calls)
        def let_time_pass(self, call):
            if call.state == "open":
                rows = Confirmation.objects.filter(pk=call.confirmation.pk)
                rows.update(expires_at=timezone.now())
                decisions.expire_overdue()
                call.state = "over"

        @rule(call=calls)
        def cancel(self, call):
            execution = call.row.get()
            caller = at_the_browser(execution.user)
            if call.state == "over" and not call.cancelled:
                with pytest.raises(Conflict):
                    answer.cancel(caller=caller, execution=execution)
                return
            ended = answer.cancel(caller=caller, execution=execution)
            assert ended.status == Status.CANCELLED
            call.state, call.cancelled = "over", True

        @rule(call=calls, by_force=st.booleans())
        def run(self, call, by_force):
            waits = call.row.filter(status=Status.REQUIRES_CONFIRMATION)
            forced = bool(by_force and waits.update(status=Status.PENDING))
            expected = call.state == "approved" and not self.stale(call)
            performance = claim(call.confirmation.execution_id, "worker")
            begun = performance is not None and performance.result is None
            assert begun == expected
            if begun:
                self.began.add(call.confirmation.execution_id)
                performance.result = Result(Status.SUCCESS, output={})
                finish(performance)
            if forced or call.state == "approved":
                call.state = "over"

        @rule(call=calls)
        def tamper(self, call):
            if call.state != "over":
                call.row.update(parameters={"text": "evil"})
                call.spoilt = True

        @rule(call=calls)
        def revoke_its_token(self, call):
            token = call.row.get().token_id
            Token.objects.filter(pk=token).update(revoked_at=timezone.now())
            call.spoilt = True

        @rule()
        def change_the_tool(self):
            self.version += 1
            definition = factories.definition(
                self.name, requires_confirmation=True, description=f"Number {self.version}."
            )
            catalog.update_tool(
                tool=self.tool, definition=definition, by=factories.actor(organization)
            )

        @rule(critical=st.booleans())
        def mark(self, critical):
            by = factories.actor(organization)
            catalog.set_critical(tool=self.tool, critical=critical, by=by)
            self.critical = critical

        @rule(agent=AGENTS, active=st.booleans())
        def suspend(self, agent, active):
            by = factories.actor(organization)
            policy.change_agent(agent=self.agents[agent], active=active, by=by)
            self.active[agent] = active

        @invariant()
        def what_began_was_agreed_to_by_enough(self):
            ids = [call.confirmation.execution_id for call in self.known]
            starts = AuditRecord.objects.filter(execution_id__in=ids, code="TOOL.START")
            found = sorted(starts.values_list("execution_id", flat=True))
            assert found == sorted(self.began)
            for call in self.known:
                if call.confirmation.execution_id in self.began:
                    assert len(call.yes) >= call.needs

    return Held


@pytest.mark.part("generated")
@examples(3, 30)
def test_nothing_begins_without_enough_consent(organization, max_examples):
    run_state_machine_as_test(machine(organization), settings=of_machine(max_examples, 25))
