"""The same attacks without a sandbox: an ordinary user's processes in a throw-away machine.

`python -m tests.attacks.control` tells which of them work. Meanwhile namespaces for
all of them together, hard limits far above those of the sandbox, and an end to everything after
each attack keep the machine whole.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

from sandbox.daemon import privileges
from sandbox.inside.layers import libc
from tests.attacks import plain_http, services, suite
from tests.attacks.attack import Attack, Duel
from tests.attacks.evidence import ALWAYS, Evidence
from tests.attacks.plain import LONGEST_S, Answer, Plain
from tests.attacks.scene import Scene, remove
from tests.conditions import LIMIT_S
from tests.sandbox.run_observer import wait_readable

_ROOT = Path(__file__).resolve().parents[2]
_UNUSED_UID = 61918
_TRIES = 20  # of two processes that attack one another
_METADATA = ("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
_COVERED = {
    "/tmp": "size=300m,nr_inodes=30000,mode=1777",
    "/dev/shm": "size=128m,mode=1777",
    "/var/tmp": "size=64m,nr_inodes=30000,mode=1777",
}


@dataclass
class Bite:
    """What one attack did without a sandbox; empty when it did nothing."""

    name: str
    what: str
    toothless: str


def main() -> int:
    run = Run(*sys.argv[1:])
    bites = run.bites()
    run.stop()
    for bite in bites:
        print(
            f"{'bit ' if bite.what else '----'} {bite.name}: {bite.what or bite.toothless or '?'}"
        )
    print(f"control: {sum(bool(bite.what) for bite in bites)} of {len(bites)} bit")
    return 0


class Run:
    """All attacks, or those named, in a process that is in namespaces of its own."""

    def __init__(self, *names: str) -> None:
        command = [sys.executable, "-m", "tests.attacks.control", "--inside", *names]
        environment = os.environ | {"SIEGE_SECRET": f"secret-{uuid4().hex}"}
        self._report = tempfile.TemporaryFile()  # noqa: SIM115 - read when all is over
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - the same
        self._process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdout=self._report,
            stderr=self._complaints,
            start_new_session=True,  # signals to the group reach out of namespaces
        )

    def bites(self) -> list[Bite]:
        """Waits for the end. Raises RuntimeError when it was not a good one."""
        if status := self._process.wait():
            self._complaints.seek(0)
            last = self._complaints.read()[-2_000:].decode("utf-8", "replace")
            raise RuntimeError(f"the control broke down with {status}: {last}")
        self._report.seek(0)
        return [Bite(**json.loads(line)) for line in self._report]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._report.close()
        self._complaints.close()


def inside(names: list[str]) -> int:
    """Process 1 of a throw-away machine does it; this one waits."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # an attack sends it to its whole group
    uid, gid = os.getuid(), os.getgid()
    kinds = os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWNET
    os.unshare(kinds if uid == 0 else kinds | os.CLONE_NEWUSER)
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    child = os.fork()
    if child == 0:
        _last(names, uid or _UNUSED_UID)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _last(names: list[str], uid: int) -> NoReturn:
    status = 1
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        furnish()
        with Scene(uid, os.environ["SIEGE_SECRET"], without_sandbox=True) as scene:
            for path in (scene.base / "secret", "/"):
                os.set_inheritable(os.open(path, os.O_RDONLY), True)
            for bite in Control(scene).run_attacks(names):
                print(json.dumps(vars(bite)), flush=True)
        status = 0
    except BaseException:  # noqa: BLE001 - the outermost edge of this process
        traceback.print_exc()
    finally:
        os._exit(status)


def furnish() -> None:
    """Private places to fill, an empty network, and the interpreter for every user."""
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    for place, options in _COVERED.items():
        _cover(place, options)
    libc.mount("proc", "/proc", "proc")
    ours = (_ROOT / "sandbox", _ROOT / "tests")  # the checkout itself may be closed to others
    privileges.make_reachable(Path(sys.base_prefix), Path(sys.prefix), *ours)
    _raise_loopback()
    _name_hosts()
    os.chdir("/var/tmp")


def _cover(place: str, options: str) -> None:
    """What this program needs and lies below shows through."""
    needed = {
        Path(one) for one in (sys.base_prefix, sys.prefix, _ROOT) if Path(one).is_relative_to(place)
    }
    held = {path: os.open(path, os.O_PATH) for path in needed}
    libc.mount("tmpfs", place, "tmpfs", 0, options)
    for path, descriptor in held.items():
        path.mkdir(parents=True, exist_ok=True)
        libc.mount(f"/proc/self/fd/{descriptor}", str(path), flags=libc.MS_BIND | libc.MS_REC)
        os.close(descriptor)


def _raise_loopback() -> None:
    """Up, and with the addresses that clouds answer at."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
        for number, address in enumerate(_METADATA, 1):
            name = f"lo:{number}".encode()
            packed = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(any_socket, 0x8916, packed)


def _name_hosts() -> None:
    """Names mean here what they mean to the broker of the other side."""
    lines = [f"{address} {name}\n" for name, address in services.NAMES.items()]
    Path("/var/tmp/hosts").write_text("".join(lines))
    libc.mount("/var/tmp/hosts", "/etc/hosts", flags=libc.MS_BIND)


class Control:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        # Children find it in the memory they begin with.
        self._all_parameters: list[dict[str, Any]] = []

    def run_attacks(self, names: list[str]) -> Iterator[Bite]:
        for attack in suite.ATTACKS.values():
            if not names or attack.name in names:
                yield Bite(attack.name, self._suffer_patiently(attack), attack.toothless)
                self._clear()
        for duel in suite.DUELS.values():
            if not names or duel.name in names:
                yield Bite(duel.name, self._suffer_two_patiently(duel), duel.toothless)
                self._clear()

    def _suffer_patiently(self, attack: Attack) -> str:
        """Most bite at once or never; one that should has longer on a machine that is busy."""
        bite = self._suffer(attack, LONGEST_S)
        if bite or attack.toothless:
            return bite
        self._clear()
        return self._suffer(attack, LIMIT_S)

    def _suffer_two_patiently(self, duel: Duel) -> str:
        """Other processes of the machine interfere: one of them reads a file into memory again just
        after an attack has put it out."""
        for _ in range(_TRIES):
            bite = self._suffer_two(duel)
            if bite or duel.toothless:
                break
            self._clear()
        return bite

    def _suffer(self, attack: Attack, longest_s: float) -> str:
        plain_http.remember_credentials(self._scene.secret)
        parameters = self._parameters(attack) | attack.extra
        run = Plain(attack.body, parameters, self._scene, longest_s)
        answer = run.finish(attack.limits.wall_s)
        evidence = self._look(answer, run.marker)
        return "; ".join(filter(None, (judge(evidence) for judge in (*attack.seen, *ALWAYS))))

    def _suffer_two(self, duel: Duel) -> str:
        if not duel.at_once:
            answers = [Plain(side, self._parameters(duel), self._scene).finish(duel.limits.wall_s)
                       for side in (duel.holder, duel.prober)]  # fmt: skip
        else:
            answers = self._at_once(duel)
        return "; ".join(f"it got {ascii(one.value)[:200]}" for one in answers if one.value)

    def _at_once(self, duel: Duel) -> list[Answer]:
        with self._scene.meeting() as (ready, answer):
            holder = Plain(duel.holder, self._parameters(duel), self._scene)
            while not wait_readable(ready, 0.02) and not holder.has_ended():
                continue
            prober = Plain(duel.prober, self._parameters(duel), self._scene).finish(2)
            os.write(answer, b"x")
            return [holder.finish(2), prober]

    def _parameters(self, attack: Attack | Duel) -> dict[str, Any]:
        ours = {"parent": os.getpid(), "sandboxd": f"{self._scene.base}/knock"}
        self._all_parameters.append(self._scene.parameters(attack.limits, sandboxed=False) | ours)
        return self._all_parameters[-1]

    def _look(self, answer: Answer, marker: str) -> Evidence:
        scene = self._scene
        return Evidence(
            got=answer.value,
            outcome=answer.outcome,
            code=answer.code,
            text=answer.text,
            cpu_ms=answer.cpu_ms,
            knocks=scene.knocks(),
            changes=scene.changes(),
            left=scene.traps(),
            survivors=scene.survivors(marker, patience_s=0.05),
            secret_leaked=scene.secret in answer.text,
            canary_dead=scene.canary_is_dead(),
            overstayed=answer.overstayed,
        )

    def _clear(self) -> None:
        """No process, no file, no mark on a shared descriptor stays for the next."""
        while others := _others(self._scene.canary.pid, self._scene.services.pid):
            for pid in others:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        _sweep(keep={self._scene.base.name, f"siege-{self._scene.token}"})


def _others(*ours: int) -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, *ours}


def _sweep(keep: set[str]) -> None:
    shown = {
        part for path in (sys.base_prefix, sys.prefix, str(_ROOT)) for part in Path(path).parts
    }
    left = [entry.path for place in _COVERED for entry in os.scandir(place)
            if entry.name not in keep | shown]  # fmt: skip
    for path in left:
        remove(path)


if __name__ == "__main__":
    sys.exit(inside(sys.argv[2:]) if sys.argv[1:2] == ["--inside"] else main())
