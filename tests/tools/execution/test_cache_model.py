"""Property test of the result cache: in any order of events, a result is reused only where it may
be."""

from uuid import uuid4

import pytest
from django.db.models.functions import Now
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests import factories
from tests.properties import examples, of_machine
from tools.accounts.grants.grant_actions import set_grants
from tools.catalog import actions as catalog
from tools.errors import Refused
from tools.execution import cache
from tools.execution.perform import perform
from tools.models import CacheEntry, Execution, Organization

COUNTS = "import uuid\ndef main(p):\n    return p['text'] + ' ' + str(uuid.uuid4())\n"
TEXTS = st.sampled_from(["a", "b"])
PLACES = st.sampled_from([0, 1])
WHO = st.sampled_from([0, 1])


class Cached(RuleBasedStateMachine):
    """The model keeps the last result of each organization and text while it may be reused."""

    def __init__(self):
        super().__init__()
        made = [factories.organization(f"cache-{uuid4().hex[:10]}") for _ in range(2)]
        self.made = made
        self.agents = [[factories.agent(place) for _ in range(2)] for place in made]
        self.granted = {(place, who): True for place in (0, 1) for who in (0, 1)}
        for place in made:
            factories.tool(
                place,
                "dice",
                delivery="pure",
                cache_ttl="PT5M",
                implementation={"source": COUNTS},
            )
        self.known = {}
        self.given = set()

    @rule(place=PLACES, who=WHO, text=TEXTS)
    def ask(self, place, who, text):
        try:
            execution = factories.execution(self.agents[place][who], "dice", text=text)
        except Refused:
            assert not self.granted[place, who]
            return
        assert self.granted[place, who]
        if execution.status == "Pending":
            perform(execution.pk)
        done = Execution.objects.get(pk=execution.pk)
        assert done.status == "Success" and done.output.startswith(text)
        if (place, text) in self.known:
            assert (done.cached, done.output) == (True, self.known[place, text])
        else:
            assert not done.cached and done.output not in self.given
            self.known[place, text] = done.output
            self.given.add(done.output)

    @rule(place=PLACES, who=WHO)
    def turn_a_grant(self, place, who):
        held = self.granted[place, who] = not self.granted[place, who]
        agent, made = self.agents[place][who], self.made[place]
        set_grants(agent=agent, by=factories.actor(made), tools=["*"] if held else [])
        self.forget(place)

    @rule(place=PLACES, text=st.text(max_size=5))
    def change_the_tool(self, place, text):
        made = self.made[place]
        tool = catalog.find_tool(made, "dice")
        changed = catalog.amended(tool.version.definition, {"title": f"Dice {len(text)}"})
        catalog.update_tool(tool=tool, definition=changed, by=factories.actor(made))
        self.forget(place)

    @rule(place=PLACES)
    def invalidate(self, place):
        made = Organization.objects.get(pk=self.made[place].pk)
        cache.invalidate(organization=made, by=factories.actor(made))
        self.forget(place)

    @rule(place=PLACES)
    def let_time_pass(self, place):
        CacheEntry.objects.filter(organization=self.made[place]).update(expires_at=Now())
        self.forget(place)

    def forget(self, place):
        self.known = {key: value for key, value in self.known.items() if key[0] != place}


@pytest.mark.usefixtures("committed")
@examples(2, 10)
def test_no_order_of_events_gives_a_wrong_answer(max_examples):
    run_state_machine_as_test(Cached, settings=of_machine(max_examples, 20))
