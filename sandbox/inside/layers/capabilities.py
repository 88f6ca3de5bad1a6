"""Give up every capability, and every way to get one back."""

from sandbox.inside.layers import libc

_AMBIENT_CLEAR_ALL = 4


def last_capability() -> int:
    """Ask before /proc is replaced by one that shows processes only."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def drop_all(last: int) -> None:
    """The bounding set first: taking from it needs a capability."""
    for capability in range(last + 1):
        libc.prctl(libc.PR_CAPBSET_DROP, capability)
    libc.prctl(libc.PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    libc.capset(())
