"""Resource limits (rlimits) of a process, as a fallback for the cgroup."""

import math
import os
import resource

_DESCRIPTORS = 256
_SIGNALS = 256
_RESERVE = 8 << 20


def confine_slot() -> None:
    """What every run has in common. After its user namespace: there the signals are its own."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 65536),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, _SIGNALS),
    ):
        resource.setrlimit(kind, (value, value))


def confine_descriptors() -> None:
    """After the slot has sent its own: those on their way count for all runs of the user together,
    and one with few may not send while another holds many."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))


def confine_run(limits: dict[str, float], data_before: int) -> None:
    """`data_before`, in bytes, is what the slot had before its job and is not the run's."""
    data = data_before + int(limits["memory_bytes"])
    cpu = math.ceil(resource.getrusage(resource.RUSAGE_SELF).ru_utime + limits["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_DATA, (data, data + _RESERVE))
    for kind, value in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_NPROC, int(limits["processes"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        (resource.RLIMIT_NOFILE, min(int(limits["open_files"]), _DESCRIPTORS)),
    ):
        resource.setrlimit(kind, (value, value))


def confine_server(limits: dict[str, float], data_before: int) -> None:
    """It lasts, so its processor time is not counted; `data_spare` is what runtimes set aside and
    never use, where a control group counts what they do use."""
    data = data_before + int(limits["memory_bytes"]) + int(limits["data_spare"])
    for kind, value in (
        (resource.RLIMIT_DATA, data),
        (resource.RLIMIT_NPROC, int(limits["processes"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        (resource.RLIMIT_NOFILE, min(int(limits["open_files"]), _DESCRIPTORS)),
    ):
        resource.setrlimit(kind, (value, value))


def open_reserve() -> None:
    """A little memory to say that there is none left."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def data_bytes(proc: int) -> int:
    """Sixth field of statm: data and stack, in pages. `proc` is a descriptor of /proc."""
    file = os.open("self/statm", os.O_RDONLY, dir_fd=proc)
    try:
        return int(os.read(file, 256).split()[5]) * resource.getpagesize()
    finally:
        os.close(file)
