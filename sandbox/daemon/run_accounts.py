"""The OS accounts of templates and their runs: one of their own, where root started sandboxd.

Else it is sandboxd's, as it is for containers. What sandboxd cannot do to a process of another user
`account_helper.py` does for it.
"""

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from sandbox.daemon import subprocesses
from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits.cgroup_leaves import write
from sandbox.inside import session_kill

MESSAGE_BYTES = 1 << 17
MOST_DESCRIPTORS = 250
_NICER = 9  # than sandboxd: an eighth of what it weighs
_LOOK_AGAIN_S = 0.05
_TRIAL = "import os, sys; os.rmdir(os.mkdir(sys.argv[1] + '/trial') or sys.argv[1] + '/trial')"
ONE_USER = "sandboxd was not started by root"

type Shared = list[tuple[str, int | None]]  # a path, and the number it is open at


class SandboxAccount(Protocol):
    """The user of a template's processes."""

    @property
    def uid(self) -> int: ...

    def enter(self, pid: int, group: str, hierarchies: Iterable[Path]) -> None:
        """The group of this name in each hierarchy, of version 1. Raises OSError."""
        ...

    def give_way(self, pid: int) -> None: ...

    def kill(self, pidfd: int) -> None:
        """May raise ProcessLookupError for one that is gone."""
        ...

    def kill_session(self, leader: int) -> None:
        """Returns when nothing of it is left."""
        ...


class OurAccount:
    """Sandboxd's own user."""

    @property
    def uid(self) -> int:
        return os.geteuid()

    def enter(self, pid: int, group: str, hierarchies: Iterable[Path]) -> None:
        for directory in hierarchies:
            write(f"{directory}/{group}/cgroup.procs", str(pid))

    def give_way(self, pid: int) -> None:
        lower_priority(pid)

    def kill(self, pidfd: int) -> None:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def kill_session(self, leader: int) -> None:
        session_kill.kill(frozenset({leader}))


OURS = OurAccount()


def lower_priority(pid: int) -> None:
    """To every other process. What this one starts later does so too; none can take it back."""
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + _NICER, 19)
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread), nice)


class StartedProgram(Protocol):
    """One that was started: its account, and its pipes."""

    @property
    def account(self) -> SandboxAccount: ...

    @property
    def stdin(self) -> IO[bytes]: ...

    @property
    def stderr(self) -> IO[bytes]: ...

    def end(self) -> None:
        """Kill it and wait for its end."""
        ...


class Accounts(Protocol):
    @property
    def flaw(self) -> str | None:
        """Why some templates share sandboxd's user, as an end of a sentence; None: none does."""
        ...

    def start(
        self, command: list[str], environment: dict[str, str], inherited: list[int], shared: Shared
    ) -> StartedProgram:
        """`shared` are paths that are sandboxd's user's and shall be the program's. Raises
        OSError."""
        ...

    def close(self) -> None: ...


@dataclass
class OurProgram:
    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stderr: IO[bytes]
    account: SandboxAccount = OURS

    def end(self) -> None:
        self.process.kill()
        subprocesses.wait_child(self.process)


class OneAccount:
    """Everything runs as sandboxd does; `flaw` says why."""

    def __init__(self, flaw: str) -> None:
        self.flaw: str | None = flaw

    def start(
        self, command: list[str], environment: dict[str, str], inherited: list[int], shared: Shared
    ) -> StartedProgram:
        process = subprocesses.start_child(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=inherited,
            env=environment,
            cwd="/",
        )
        assert process.stdin is not None and process.stderr is not None
        return OurProgram(process, process.stdin, process.stderr)

    def close(self) -> None:
        """Nothing is held."""


class AccountHelperClient:
    """Sandboxd's end of the conversation with the process that is root."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control, self._pid = control, pid
        self._lock = threading.Lock()
        self._closing = False
        subprocesses.add_child(pid)
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="helper")
        self._watcher.start()

    def ask(
        self, request: dict[str, Any], descriptors: list[int], answers: int = 0
    ) -> tuple[dict[str, int], list[int]]:
        """Raises OSError, with what the helper said."""
        with self._lock:
            self._send(request, descriptors)
            text, received, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, answers)
        if not text:
            raise ConnectionResetError("the process that gives accounts has ended")
        answer = json.loads(text)
        if "flaw" in answer:
            raise OSError(answer["flaw"])
        return answer, received

    def notify(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """What is not answered. Without a helper all runs have ended."""
        with self._lock, suppress(BrokenPipeError, ConnectionResetError):
            self._send(request, descriptors)

    def close(self) -> None:
        self._closing = True
        self._control.shutdown(socket.SHUT_RDWR)
        self._watcher.join()

    def _send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        self._control.sendmsg([json.dumps(request).encode()], [rights] if descriptors else [])

    def _watch(self) -> None:
        """With the helper all templates end; sandboxd ends too, and is started again."""
        _, status = os.waitpid(self._pid, 0)
        subprocesses.remove_child(self._pid)
        if not self._closing:
            log("account_helper_ended", status=os.waitstatus_to_exitcode(status))
            os.kill(os.getpid(), signal.SIGTERM)


@dataclass(frozen=True)
class LeasedAccount:
    """A user that has nothing but one template."""

    helper: AccountHelperClient
    uid: int

    def enter(self, pid: int, group: str, hierarchies: Iterable[Path]) -> None:
        self._enter(pid, group)

    def give_way(self, pid: int) -> None:
        self._enter(pid, None)

    def kill(self, pidfd: int) -> None:
        self.helper.notify({"kind": "kill", "uid": self.uid}, [pidfd])

    def kill_session(self, leader: int) -> None:
        over, held = os.pipe2(os.O_CLOEXEC)
        request = {"kind": "kill_session", "uid": self.uid, "leader": leader}
        try:
            self.helper.notify(request, [held])
        finally:
            os.close(held)
        with os.fdopen(over, "rb") as end:
            end.read()  # until the process that kills lets go of it

    def _enter(self, pid: int, group: str | None) -> None:
        request = {"kind": "enter", "uid": self.uid, "pid": pid, "group": group}
        self.helper.ask(request, [])


@dataclass
class LeasedProgram:
    account: LeasedAccount
    stdin: IO[bytes]
    stderr: IO[bytes]
    pidfd: int

    def end(self) -> None:
        look = select.poll()
        look.register(self.pidfd, select.POLLIN)
        while True:
            self.account.kill(self.pidfd)
            if look.poll(_LOOK_AGAIN_S * 1000):
                break
        os.close(self.pidfd)


class OwnAccounts:
    """A user for each template. One whose paths cannot be mounted for another user has
    sandboxd's, and `flaw` says so."""

    def __init__(self, helper: AccountHelperClient) -> None:
        self._helper = helper
        self._one = OneAccount("")
        self.flaw: str | None = None

    def start(
        self, command: list[str], environment: dict[str, str], inherited: list[int], shared: Shared
    ) -> StartedProgram:
        try:
            return self.lend(command, environment, inherited, shared)
        except ConnectionError:
            raise
        except OSError as error:
            self.flaw = str(error)
            log("account_shared", reason=self.flaw)
        return self._one.start(command, environment, inherited, shared)

    def lend(
        self, command: list[str], environment: dict[str, str], inherited: list[int], shared: Shared
    ) -> LeasedProgram:
        """Raises OSError."""
        reads, stdin = os.pipe2(os.O_CLOEXEC)
        stderr, writes = os.pipe2(os.O_CLOEXEC)
        reason, says = os.pipe2(os.O_CLOEXEC)
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        near, far = [reads, nothing, writes, says], [stdin, stderr, reason]
        request = {
            "kind": "start",
            "command": command,
            "environment": environment,
            "numbers": [0, 1, 2, *inherited],
            "shared": shared,
        }
        try:
            sent = [reads, nothing, writes, *inherited, says]
            answer, (pidfd,) = self._helper.ask(request, sent, 1)
        except OSError:
            _close(far)
            raise
        finally:
            _close(near)
        account = LeasedAccount(self._helper, answer["uid"])
        program = LeasedProgram(account, os.fdopen(stdin, "wb"), os.fdopen(stderr, "rb"), pidfd)
        with os.fdopen(reason, "rb") as flaw_pipe:
            flaw = flaw_pipe.read()  # nothing, once the command is executed
        if flaw:
            with program.stdin, program.stderr:
                program.end()
            raise OSError(flaw.decode("utf-8", "replace"))
        return program

    def close(self) -> None:
        self._helper.close()


def choose(helper: AccountHelperClient | None, place: str) -> Accounts:
    """Users of their own where that really works: a program of one writes to `place`."""
    if helper is None:
        return OneAccount(ONE_USER)
    lending = OwnAccounts(helper)
    command = [sys.executable, "-I", "-S", "-c", _TRIAL, place]
    try:
        tried = lending.lend(command, {}, [], [(place, None)])
    except OSError as error:
        flaw = str(error)
    else:
        with tried.stdin, tried.stderr:
            flaw = tried.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        tried.end()
    if not flaw:
        return lending
    lending.close()
    return OneAccount(flaw)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
