"""What gates read of limits: counted and reserved for a call, or only peeked at.

The gates `load`, `fan_out`, `rate` and `budget` return what an object here answers. It counts when
its gate is asked, in the order of the gates, so that nothing is counted for a call that an earlier
gate refuses.
"""

from tools.definitions.callers import Caller
from tools.definitions.results import Rate
from tools.errors import RateLimited, Shed
from tools.limits import budgets, load_shedder, rate_limits
from tools.limits.budgets import Reservation
from tools.limits.load_shedder import Arrival
from tools.models import Execution
from tools.policy.questions import Gate, Question, Verdict, passed, refused

# Open composite calls of a caller. They are limited per depth, so that none waits for a call that
# waits for it: the deepest ones make no composite calls and finish, then those above them.
MOST_OPEN = 500
MOST_DRAFTS_PER_MINUTE = 10


class CountedLimits:
    """Of one call on its way in. What it takes is here, for who settles or releases it."""

    def __init__(self) -> None:
        self.arrival: Arrival | None = None
        self.shed: Shed | None = None  # there is no room, unless the answer is known already
        self.rate_state: Rate | None = None
        self.rate_confirmed = False  # in the transaction that writes the call
        self.reservation: Reservation | None = None

    def load(self, question: Question) -> Verdict:
        """No query. An answer that is known takes no place."""
        try:
            self.arrival = load_shedder.LOAD_SHEDDER.enter(question.caller)
        except Shed as refusal:
            if question.tool.definition.cache_ttl_s is None:
                return refused(Gate.LOAD, refusal)
            self.shed = refusal
        return passed(Gate.LOAD)

    def fan_out(self, question: Question) -> Verdict:
        """Calls that make calls are counted apart: they take no worker while they wait for
        theirs."""
        return _fan_out_verdict(question)

    def rate(self, question: Question) -> Verdict:
        try:
            self.rate_state = rate_limits.count(question.caller, question.tool, question.snapshot)
        except RateLimited as refusal:
            return refused(Gate.RATE, refusal)
        return passed(Gate.RATE)

    def budget(self, question: Question) -> Verdict:
        """What is to be reserved is kept here: the statement that accepts the call reserves it, and
        refuses the call where it is short."""
        self.reservation = budgets.plan_reservation(
            caller=question.caller,
            tool=question.tool,
            asked=question.asked,
            snapshot=question.snapshot,
            cost=question.terms.cost,
        )
        return passed(Gate.BUDGET)


class PeekedLimits:
    """For an explanation: nothing is counted, reserved or waited for."""

    def load(self, question: Question) -> Verdict:
        return load_shedder.peek(question)

    def fan_out(self, question: Question) -> Verdict:
        return _fan_out_verdict(question)

    def rate(self, question: Question) -> Verdict:
        return rate_limits.peek(question.caller, question.tool)

    def budget(self, question: Question) -> Verdict:
        return budgets.peek(question)


class DraftLimits(PeekedLimits):
    """Of a test run of a draft. It is counted like a call and as a draft, and is not paid for."""

    def load(self, question: Question) -> Verdict:
        """Its room is held by `pressure.hold_room`, which refuses before any gate is asked."""
        return passed(Gate.LOAD)

    def rate(self, question: Question) -> Verdict:
        try:
            rate_limits.count_drafts(question.caller, MOST_DRAFTS_PER_MINUTE)
            rate_limits.count(question.caller, question.tool, question.snapshot)
        except RateLimited as refusal:
            return refused(Gate.RATE, refusal)
        return passed(Gate.RATE)


def check_fan_out(caller: Caller, depth: int) -> None:
    """Raises `Shed` until one of the open composite calls has ended. Counted without a lock: some
    concurrent calls may exceed the limit."""
    found = Execution.objects.filter(open__composite=True, open__user=caller.user_id, depth=depth)
    if found.order_by()[:MOST_OPEN].count() < MOST_OPEN:
        return
    raise Shed(
        f"{MOST_OPEN} batches, chains and programs of {caller.name} are not over yet, and no more"
        " may be. Wait for one of them, or cancel it.",
        code="too_many_composites",
        gate=Gate.FAN_OUT.value,
        limit=MOST_OPEN,
        used=MOST_OPEN,
        resets_in_s=1,
    )


def _fan_out_verdict(question: Question) -> Verdict:
    if question.tool.definition.composite:
        try:
            check_fan_out(question.caller, question.terms.depth)
        except Shed as refusal:
            return refused(Gate.FAN_OUT, refusal)
    return passed(Gate.FAN_OUT)


PEEKED = PeekedLimits()
DRAFT = DraftLimits()
