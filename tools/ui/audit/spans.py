"""Formats durations as words."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def span(seconds: int) -> str:
    for unit_s, unit in _UNITS:
        if seconds % unit_s == 0:
            return f"{seconds // unit_s}\N{NO-BREAK SPACE}{unit}"
    return f"{seconds}\N{NO-BREAK SPACE}s"
