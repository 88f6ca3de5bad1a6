"""The exit status of a process that is not our child: since Linux 6.15 its pidfd has it."""

import fcntl
import select
import signal
import struct

# struct pidfd_info of <linux/pidfd.h>, first version: mask, cgroup, eleven numbers, exit code.
_INFO = struct.Struct("QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_WITH_EXIT = 1 << 3
_EXIT_TIMEOUT_S = 0.2  # process 1 of a namespace waits for all others before it is gone
_GONE = select.POLLHUP  # POLLIN comes earlier, before the kernel has written the exit down


def was_killed(pidfd: int) -> bool:
    """By SIGKILL, which no process sends itself by mistake; False where the kernel cannot say."""
    status = _status(pidfd)
    return status is not None and status & 0x7F == signal.SIGKILL


def _status(pidfd: int) -> int | None:
    """As waitpid gives it; None for a process that has not ended, or on an older kernel."""
    gone = select.poll()
    gone.register(pidfd, _GONE)
    gone.poll(_EXIT_TIMEOUT_S * 1000)
    info = bytearray(_INFO.pack(_WITH_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(info)
    return status if mask & _WITH_EXIT else None
