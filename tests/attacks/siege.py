"""Attacks inside the sandbox: run each, look at it from outside, and say what worked."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sandbox.client import SandboxClient
from sandbox.egress.rules.egress_policy import EgressPolicy
from sandbox.errors import ErrorCode
from sandbox.spec import (
    CodeSource,
    IsolationLevel,
    Limits,
    Mount,
    Network,
    Profile,
    RunOutcome,
    SandboxResult,
    SandboxSpec,
)
from tests.attacks.attack import ATTACKS, NONE, USUAL, Attack, Duel
from tests.attacks.evidence import ALWAYS, Evidence, got_something, outlived_its_run
from tests.attacks.scene import Scene
from tests.attacks.sources import Body, source_of, source_of_all
from tests.conditions import LIMIT_S, until
from tests.sandbox.conftest import Daemon
from tests.sandbox.run_observer import wait_readable

_OWN_USER = "import os\ndef main(p):\n    return os.getuid()"
_US, _THEM = "acme", "umbrella"
# So late sandboxd may look at a limit on a machine that is busy. Who has no limit has more.
_LATE_MS, _LATE_CPU_MS = 20_000, 2_000
# What a refusal looks like from inside. Any other error is a slip of the attack's own.
_REFUSALS = (
    "PermissionError", "FileNotFoundError", "OSError", "BlockingIOError", "ProcessLookupError",
    "NotADirectoryError", "FileExistsError", "ConnectionRefusedError", "TimeoutError", "gaierror",
    "ValueError: not allowed to raise maximum limit", "ValueError: current limit exceeds maximum",
    "RuntimeError: can't start new thread", "StopIteration", "IsADirectoryError",
    "InterruptedError", "says the tool",
    "ChildProcessError", "BrokenPipeError", "EgressError",
)  # fmt: skip
_SAYS_THE_TOOL = "says the tool"
_DEATHS = (ErrorCode.EXITED, ErrorCode.TIMEOUT, ErrorCode.CPU_LIMIT, ErrorCode.OUTPUT_LIMIT)


class Siege:
    """A running sandboxd and what an attack could get hold of around it."""

    def __init__(self, daemon: Daemon, scene: Scene, groups: str, egress: str) -> None:
        self.daemon, self.scene, self.groups = daemon, scene, groups
        self.client = SandboxClient(daemon.path, egress)
        self._together: dict[tuple[Body, IsolationLevel], bool] = {}
        self.mode = daemon.facts["cgroups"]["mode"]
        self.served = frozenset(level for level in IsolationLevel if self._serves(level))

    def _serves(self, level: IsolationLevel) -> bool:
        """With the templates that attacks will use: they count as there from the start."""
        for profile in (self.profile(level), Profile(level)):
            result = self.daemon.run("def main(p):\n    return 1", profile=profile)
        return result.error_code != ErrorCode.ISOLATION_UNAVAILABLE

    def memory_kb(self) -> int:
        status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def descriptors_settle(self) -> bool:
        """Few more than ready slots and templates need, once the janitor is through.

        Only root may look: True for others.
        """
        directory = f"/proc/{self.daemon.process.pid}/fd"
        if os.geteuid() != 0:
            return True
        return until(lambda: len(os.listdir(directory)) < 32 + 10 * self._ready())

    def leaves_settle(self) -> bool:
        """No more control groups than ready slots."""
        kinds = len(list(Path("/sys/fs/cgroup").glob(f"*/{self.groups}")))
        return until(lambda: len(self.leaves()) <= kinds * self._ready())

    def leaves(self) -> dict[str, str]:
        """Each control group of a run that is there, and the processes in it."""
        found = {}
        for leaf in Path("/sys/fs/cgroup").glob(f"*/{self.groups}/run-*"):
            with suppress(OSError):  # it went meanwhile
                found[str(leaf)] = " ".join((leaf / "cgroup.procs").read_text().split())
        return found

    def _ready(self) -> int:
        ping = self.daemon.client.ping()
        return int(ping["slots"]) + int(ping["templates"])

    def suffer(self, attack: Attack, level: IsolationLevel) -> list[str]:
        """What worked of the attack, and what else was wrong; nothing when it was contained."""
        if attack.together and self._suffered_together(attack.body, level):
            return []
        parameters = self._parameters(attack.limits, level) | attack.extra
        result = self._run(attack, source_of(attack.body), parameters, level)
        evidence = self._look(result, attack, parameters["marker"])
        worked = [judge(evidence) for judge in dict.fromkeys((*attack.seen, *ALWAYS))]
        return [*filter(None, worked), *_oddities(attack, result)]

    def _suffered_together(self, body: Body, level: IsolationLevel) -> bool:
        """Whether all of this body were tried in one run, and each of them was contained."""
        if (body, level) not in self._together:
            self._together[body, level] = self._suffer_all(body, level)
        return self._together[body, level]

    def _suffer_all(self, body: Body, level: IsolationLevel) -> bool:
        all_of_them = [one for one in ATTACKS.values() if one.body is body and level in one.levels]
        first = all_of_them[0]
        parameters = self._parameters(first.limits, level)
        parameters["variants"] = [one.extra for one in all_of_them]
        result = self._run(first, source_of_all(body), parameters, level)
        evidence = self._look(result, first, parameters["marker"])
        seen = [judge for judge in (*first.seen, *ALWAYS) if judge is not got_something]
        counted = not first.egress or count_requests(result) >= len(all_of_them)
        refused = [_is_refusal(*answer) for answer in result.output or [("no", "run")]]
        return counted and all(refused) and not any(judge(evidence) for judge in seen)

    def suffer_two(self, duel: Duel, level: IsolationLevel) -> list[str]:
        """The same of two runs."""
        them = _US if duel.same_organization else _THEM
        if duel.newcomer:
            them = f"{_THEM}-{self.scene.next_marker()}"
        if duel.at_once:
            results = self.at_once(duel, level, them)
        else:
            first = self._side(duel.holder, duel, level, _US)
            results = [first, self._side(duel.prober, duel, level, them)]
        return [fault for result in results for fault in _faults_of_side(result, self.scene.secret)]

    def at_once(self, duel: Duel, level: IsolationLevel, them: str = _THEM) -> list[SandboxResult]:
        """What became of both, in the order of their ends."""
        results: list[SandboxResult] = []
        with self.scene.meeting() as (ready, answer):
            holding = threading.Thread(
                target=lambda: results.append(self._side(duel.holder, duel, level, _US))
            )
            holding.start()
            while not wait_readable(ready, 0.02) and holding.is_alive():
                continue
            results.append(self._side(duel.prober, duel, level, them))
            os.write(answer, b"x")
            holding.join(LIMIT_S)
        return results

    def run_body(self, body: Body, level: IsolationLevel) -> SandboxResult:
        """With all parameters that attacks get, and nothing judged."""
        program, parameters = CodeSource(source_of(body)), self._parameters(USUAL, level)
        return self.client.run(SandboxSpec(_US, self.profile(level), USUAL, program, parameters))

    def _side(self, body: Body, duel: Duel, level: IsolationLevel, whose: str) -> SandboxResult:
        """Only the first side has places that it shares with us."""
        ours = body is duel.holder
        profile = self.profile(level) if ours or duel.same_organization else Profile(level)
        parameters = self._parameters(duel.limits, level)
        program = CodeSource(source_of(body))
        return self.daemon.client.run(SandboxSpec(whose, profile, duel.limits, program, parameters))

    def profile(self, level: IsolationLevel, network: Network = Network.NONE) -> Profile:
        mounts = (
            Mount(str(self.scene.arena), "/arena", True),
            Mount(str(self.scene.gift), "/gift"),
        )
        return Profile(level, mounts, network=network)

    def _parameters(self, limits: Limits, level: IsolationLevel) -> dict[str, Any]:
        ours = {"parent": self.daemon.process.pid, "sandboxd": self.daemon.path}
        self.scene.place_canary(self._victim_user(level))
        return self.scene.parameters(limits, sandboxed=level != NONE) | ours

    def _victim_user(self, level: IsolationLevel) -> int:
        """The very user that runs without namespaces have. It ends with their template, and every
        process of it is killed then: sandboxd retires one that is idle for ten minutes."""
        if level == NONE:
            user = self.daemon.run(_OWN_USER, organization=_US, profile=self.profile(NONE)).output
            if user is not None:
                return int(user)
        return int(self.daemon.facts["ready"]["uid"])

    def _run(
        self, attack: Attack, source: str, parameters: dict[str, Any], level: IsolationLevel
    ) -> SandboxResult:
        program, profile = CodeSource(source), self.profile(level, attack.network)
        policy = attack.egress(self.scene) if attack.egress else EgressPolicy()
        spec = SandboxSpec(_US, profile, attack.limits, program, parameters, policy)
        return self.client.run(spec)

    def _look(self, result: SandboxResult, attack: Attack, marker: str) -> Evidence:
        scene, text = self.scene, output_text(result)
        return Evidence(
            got=result.output,
            outcome=result.outcome,
            code=result.error_code or "",
            text=text,
            cpu_ms=result.usage.cpu_time_ms,
            knocks=scene.knocks(),
            changes=scene.changes(),
            left=scene.traps(),
            survivors=scene.survivors(marker) if outlived_its_run in attack.seen else 0,
            secret_leaked=scene.secret in text,
            canary_dead=scene.canary_is_dead(),
            let_through=tuple(one.host for one in result.network if not one.code),
            overstayed=result.usage.wall_ms > 1500 * attack.limits.wall_s + _LATE_MS,
        )


def _is_refusal(kind: str, value: Any) -> bool:
    """Of one of many: nothing got, or an error that the sandbox makes."""
    return not value if kind == "got" else kind.startswith(_REFUSALS)


def count_requests(result: SandboxResult) -> int:
    """What the egress broker counted."""
    return result.usage.network_requests or 0


def output_text(result: SandboxResult) -> str:
    parts = (result.output, result.stdout, result.stderr, result.error_message, result.network)
    return "\n".join(str(part) for part in parts)


def _oddities(attack: Attack, result: SandboxResult) -> Iterator[str]:
    code, message = result.error_code or "", result.error_message or ""
    if result.outcome == RunOutcome.SANDBOX_ERROR and code not in attack.ends:
        yield f"there was no run: {code} {message}"
    elif attack.ends and code not in attack.ends:
        yield f"it ended {code or 'well'}, not {' or '.join(sorted(attack.ends))}: {message[:200]}"
    elif message == _SAYS_THE_TOOL:
        return
    elif code == ErrorCode.TOOL_ERROR and not message.startswith(_REFUSALS):
        yield f"the attack itself is broken: {message[:300]}"
    elif not attack.ends and code in _DEATHS:
        yield f"it was not stopped but died: {code} {message}"
    if attack.network != Network.NONE and attack.egress and not count_requests(result):
        yield from () if attack.silent else ("nobody counted its attempt",)
    yield from _overdrawn(attack.limits, result)


def _overdrawn(limits: Limits, result: SandboxResult) -> Iterator[str]:
    usage = result.usage
    if not usage.approximate and usage.peak_memory_bytes > limits.memory_bytes * 1.001:
        yield f"it had {usage.peak_memory_bytes} bytes of {limits.memory_bytes}"
    if not usage.approximate and usage.cpu_time_ms > limits.cpu_s * 1250 + _LATE_CPU_MS:
        yield f"it had {usage.cpu_time_ms} ms of {limits.cpu_s} s"
    if max(len(result.stdout), len(result.stderr)) > 70_000:
        yield "its output was kept whole"


def _faults_of_side(result: SandboxResult, secret: str) -> Iterator[str]:
    message = result.error_message or ""
    if result.outcome == RunOutcome.SANDBOX_ERROR:
        yield f"there was no run: {result.error_code} {message}"
    if result.output:
        yield f"one of them got {ascii(result.output)[:200]}"
    if secret in output_text(result):
        yield "the secret came out"
    if result.error_code == ErrorCode.TOOL_ERROR and not message.startswith(_REFUSALS):
        yield f"the attack itself is broken: {message[:300]}"
    if result.outcome in (RunOutcome.TIMEOUT, RunOutcome.CANCELLED):
        yield f"one of them ended {result.outcome}"


@contextmanager
def besieged(daemon: Daemon, groups: str, secret: str, egress: str) -> Iterator[Siege]:
    """A siege with a scene of what sandboxd's user could get hold of."""
    with Scene(daemon.facts["ready"]["uid"], secret) as scene:
        yield Siege(daemon, scene, groups, egress)
