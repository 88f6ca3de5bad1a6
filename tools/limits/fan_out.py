"""How many calls that make calls may be open at once: of one caller, and at each depth.

By depth, so that none waits for what waits for it: those that stand deepest make no composite calls
and come to their end, then those above them. What they make are calls like any other, and bounded
as such. Counted without a lock: some that come in the same moment may pass beyond it.
"""

from tools.definitions.callers import Caller
from tools.definitions.results import OPEN
from tools.errors import Shed
from tools.models import Execution

GATE = "fan_out"
MOST_OPEN = 500


def check(caller: Caller, depth: int) -> None:
    """Raises `Shed`: there is room again when one of them is over."""
    found = Execution.objects.filter(
        status__in=sorted(OPEN), composite=True, user_id=caller.user_id, depth=depth
    )
    if found.order_by()[:MOST_OPEN].count() < MOST_OPEN:
        return
    raise Shed(
        f"{MOST_OPEN} batches, chains and programs of {caller.name} are not over yet, and no more"
        " may be. Wait for one of them, or cancel it.",
        code="too_many_composites",
        gate=GATE,
        limit=MOST_OPEN,
        used=MOST_OPEN,
        resets_in_s=1,
    )
