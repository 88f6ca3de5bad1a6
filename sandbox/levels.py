"""The order of the isolation levels. What a level consists of stands where it is put on."""

from sandbox.spec import IsolationLevel

_ORDER = list(IsolationLevel)


def at_least(level: IsolationLevel, wanted: IsolationLevel) -> bool:
    """True when `level` is as strong as `wanted`, or stronger."""
    return _ORDER.index(level) >= _ORDER.index(wanted)
