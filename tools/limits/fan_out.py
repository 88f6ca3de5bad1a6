"""Limits how many composite calls may be open at once: per caller, and per depth.

Per depth, so that none waits for what waits for it: the deepest ones make no composite calls and
finish, then those above them. The calls that they make are limited like any other. Counted without
a lock: some concurrent calls may exceed the limit.
"""

from tools.definitions.callers import Caller
from tools.definitions.results import OPEN
from tools.errors import Shed
from tools.models import Execution
from tools.policy.questions import Gate

MOST_OPEN = 500


def check(caller: Caller, depth: int) -> None:
    """Raises `Shed`: there is room again when one of them has ended."""
    found = Execution.objects.filter(
        status__in=sorted(OPEN), composite=True, user_id=caller.user_id, depth=depth
    )
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
