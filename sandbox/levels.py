"""Which layers each level of isolation has (specification S4), and the limits it starts from."""

from enum import StrEnum

from sandbox.spec import MIB, IsolationLevel, Limits


class Layer(StrEnum):
    LIMITS = "limits"
    NAMESPACES = "namespaces"
    PRIVATE_FILES = "private files"
    NO_CAPABILITIES = "no capabilities"
    SYSTEM_CALLS = "system call filter"
    LANDLOCK = "landlock"
    NO_EXEC = "no exec"
    NO_NEW_PROCESSES = "no new processes"


_STANDARD = frozenset(Layer) - {Layer.NO_EXEC, Layer.NO_NEW_PROCESSES}

LAYERS: dict[IsolationLevel, frozenset[Layer]] = {
    IsolationLevel.NONE: frozenset({Layer.LIMITS}),
    IsolationLevel.STANDARD: _STANDARD,
    IsolationLevel.STRICT: _STANDARD | {Layer.NO_EXEC},
    IsolationLevel.RESTRICTED: _STANDARD | {Layer.NO_EXEC, Layer.NO_NEW_PROCESSES},
}

DEFAULT_LIMITS: dict[IsolationLevel, Limits] = {
    IsolationLevel.NONE: Limits(processes=256),
    IsolationLevel.STANDARD: Limits(),
    IsolationLevel.STRICT: Limits(processes=24),
    IsolationLevel.RESTRICTED: Limits(processes=24, memory_bytes=128 * MIB),
}

_ORDER = list(IsolationLevel)


def at_least(level: IsolationLevel, wanted: IsolationLevel) -> bool:
    """True when `level` is as strong as `wanted`, or stronger."""
    return _ORDER.index(level) >= _ORDER.index(wanted)
