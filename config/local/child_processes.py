"""One supervised process: how it is started, becomes ready, and ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from config.local import process_launcher
from config.local.logfile import LogFile
from config.local.unix_accounts import UnixAccount, ourselves

NOTHING_ALARMS = r"(?!)"


def always() -> bool:
    return True


def nothing() -> None:
    pass


@dataclass(frozen=True)
class ProcessSpec:
    """What is run, as whom, and how one sees that it works."""

    name: str
    command: tuple[str, ...]
    directory: Path
    account: UnixAccount = field(default_factory=ourselves)
    keeps_root: bool = False  # and becomes the account by itself
    umask: int = 0o077
    environment: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[Path, ...] = ()  # directories the account needs, wherever they lie
    ready: Callable[[], bool] = always
    before_start: Callable[[], None] = nothing
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 10
    alarming: str = r"^\[?(ERROR|CRITICAL)"  # a line of plain text worth the terminal


def launcher(spec: ProcessSpec) -> list[str]:
    """The command that becomes `spec.command` as the right user and dies with this process."""
    words = [sys.executable, "-I", "-S", process_launcher.__file__]
    words += ["--parent", str(os.getpid()), "--death-signal", str(int(spec.stop_signal))]
    words += ["--directory", str(spec.directory), "--umask", f"{spec.umask:o}"]
    if not spec.account.is_ours:
        words += ["--uid", str(spec.account.uid), "--gid", str(spec.account.gid)]
        for group in sorted(spec.account.groups):
            words += ["--group", str(group)]
        words += ["--keep-root"] if spec.keeps_root else []
        for path in spec.reach:
            words += ["--reach", str(path)]
    return [*words, "--", *spec.command]


class Child:
    def __init__(self, spec: ProcessSpec, log: LogFile) -> None:
        self.spec = spec
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Starts the process at the head of a session of its own. Raises OSError, and nothing runs.

        Call it from the main thread: the kernel ends a child when the *thread* that made it ends.
        """
        self.spec.before_start()
        with self.log.open() as output:
            self.process = subprocess.Popen(
                launcher(self.spec),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.spec.environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def ended(self) -> bool:
        """True once it is over; what it left in its session is killed before its id is free."""
        if self.process is None or self.process.returncode is not None:
            return True
        with suppress(ChildProcessError):  # already reaped elsewhere; Popen copes with that
            if not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return False
        self.kill()
        self.process.wait()
        return True

    def ask_to_stop(self) -> None:
        if not self.ended() and self.process:
            self.process.send_signal(self.spec.stop_signal)

    def kill(self) -> None:
        if not self.pid:
            return  # 0 would mean our own group
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def cause_of_death(self) -> str:
        """For people: how it ended, and the last thing it said when it ended by itself."""
        code = self.process.returncode if self.process else None
        if code is None:
            return "did not start"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        said = self.log.last_line()
        return f"ended with status {code}" + (f": {said}" if said else "")
