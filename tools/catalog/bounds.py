"""Limits on how many calls may run, wait or be open at once: whole numbers, or none."""

from typing import Any

from tools.errors import Malformed

MOST = 1_000_000
MOST_BYTES = 1024**4
MOST_DAYS = 36_500


def read_bound(name: str, value: Any) -> int | None:
    """Raises `Malformed`: a limit of nothing would hide calls that never begin."""
    return None if value is None else _check_range(name, value, MOST, ", or null for no limit")


def read_quota(name: str, value: Any) -> int:
    """Of a workspace: files, or bytes. Raises `Malformed`."""
    return _check_range(name, value, MOST_BYTES if name.endswith("bytes") else MOST)


def read_days(name: str, value: Any) -> int | None:
    """None is without an end. Raises `Malformed`."""
    return None if value is None else _check_range(name, value, MOST_DAYS, ", or null")


def _check_range(name: str, value: Any, most: int, otherwise: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Malformed(
            f"{name} must be a whole number from 1 to {most}{otherwise}.", code="invalid_limit"
        )
    return value
