"""One supervised process and its log file: how it is started, becomes ready, and ends.

The process appends to its log file itself, so no line is lost when the supervisor dies; the
supervisor watches and rotates the file.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from config.local import process_launcher
from config.local.unix_accounts import UnixAccount, current_account

MOST_BYTES = 10 * 1024 * 1024
MOST_READ = 256 * 1024
ALARMING_LEVELS = frozenset({"WARNING", "ERROR", "CRITICAL"})
NO_ALARM = r"(?!)"


class LogFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = path.stat().st_size if path.exists() else 0
        self.started_at = self.position

    def open(self) -> IO[bytes]:
        self.started_at = self.path.stat().st_size if self.path.exists() else 0
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "wb")

    def new_lines(self) -> Iterator[str]:
        """Whole lines written since the last call; a flood is skipped, not read."""
        size = self.path.stat().st_size if self.path.exists() else 0
        self.position = max(min(self.position, size), size - MOST_READ)
        if size == self.position:
            return
        with self.path.open("rb") as source:
            source.seek(self.position)
            text = source.read(size - self.position)
        whole = text[: text.rfind(b"\n") + 1]
        self.position += len(whole)
        yield from whole.decode("utf-8", "replace").splitlines()

    def last_line(self) -> str:
        """The last line with words in it since the process was started."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as source:
            source.seek(max(self.started_at, self.path.stat().st_size - MOST_READ))
            lines = source.read().decode("utf-8", "replace").splitlines()
        return next((shorten_line(line) for line in reversed(lines) if line.strip()), "")

    def rotate(self) -> None:
        """Keeps one old file. The writer appends, so emptying the file under it is safe.

        Where there is no room for the copy the log stays as it is, and the room is for others.
        """
        if not self.path.exists() or self.path.stat().st_size <= MOST_BYTES:
            return
        old = self.path.with_suffix(".log.1")
        try:
            shutil.copyfile(self.path, old)
        except OSError:
            old.unlink(missing_ok=True)
            return
        os.truncate(self.path, 0)
        self.position = self.started_at = 0


def shorten_line(line: str) -> str:
    return str(_fields(line).get("message") or line).strip()[:300]


def alarming_text(line: str, alarming: str) -> str | None:
    """What the terminal shows of a line: warnings and worse, in short; else None."""
    if str(_fields(line).get("level", "")).upper() in ALARMING_LEVELS:
        return shorten_line(line)
    return shorten_line(line) if re.search(alarming, line) else None


def always() -> bool:
    return True


def nothing() -> None:
    pass


@dataclass(frozen=True)
class ProcessSpec:
    """The command, the account that runs it, and how the supervisor checks that it is ready."""

    name: str
    command: tuple[str, ...]
    directory: Path
    account: UnixAccount = field(default_factory=current_account)
    keeps_root: bool = False  # and becomes the account by itself
    umask: int = 0o077
    environment: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[Path, ...] = ()  # directories the account needs, wherever they lie
    ready: Callable[[], bool] = always
    before_start: Callable[[], None] = nothing
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 10
    alarming: str = r"^\[?(ERROR|CRITICAL)"  # a line of plain text worth the terminal


def launch_command(spec: ProcessSpec) -> list[str]:
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


class ChildProcess:
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
                launch_command(self.spec),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.spec.environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def has_ended(self) -> bool:
        """True once it is over; what it left in its session is killed before its id is free."""
        if self.process is None or self.process.returncode is not None:
            return True
        with suppress(ChildProcessError):  # already reaped elsewhere; Popen copes with that
            if not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return False
        self.kill()
        self.process.wait()
        return True

    def request_stop(self) -> None:
        if not self.has_ended() and self.process:
            self.process.send_signal(self.spec.stop_signal)

    def kill(self) -> None:
        if not self.pid:
            return  # 0 would mean our own group
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def describe_end(self) -> str:
        """For the operator: how it ended, and its last log line when it ended by itself."""
        code = self.process.returncode if self.process else None
        if code is None:
            return "did not start"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        last_line = self.log.last_line()
        return f"ended with status {code}" + (f": {last_line}" if last_line else "")


def _fields(line: str) -> dict[str, object]:
    if not line.startswith("{"):
        return {}
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
