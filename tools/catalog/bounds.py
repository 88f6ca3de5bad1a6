"""How many calls may run, wait or be open at once: whole numbers, or none."""

from typing import Any

from tools.errors import Malformed

MOST = 1_000_000


def read_bound(name: str, value: Any) -> int | None:
    """Raises `Malformed`: a limit of nothing would hide calls that never begin."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise Malformed(
            f"{name} must be a whole number from 1 to {MOST}, or null for no limit.",
            code="invalid_limit",
        )
    return value
