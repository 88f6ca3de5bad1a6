"""The trial of one sandbox: a run that attacks it from inside, and one for each limit."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox.daemon.trials.bait import Bait
from sandbox.daemon.trials.capability import AttackResult
from sandbox.errors import ErrorCode
from sandbox.inside import selfcheck
from sandbox.levels import LAYERS
from sandbox.machine import Facts, Run
from sandbox.spec import MIB, Backend, IsolationLevel, Limits, Mount, Profile, RunOutcome

_MODULE = "selfcheck"
_SHARED = "/bait"
_SEEN_LENGTH = 200
# Other than the usual sizes: of these no slots are kept in stock.
_LIMITS = Limits(
    wall_s=10,
    cpu_s=5,
    memory_bytes=32 * MIB,
    processes=8,
    output_bytes=MIB,
    tmp_bytes=MIB,
    tmp_inodes=64,
)


@dataclass(frozen=True)
class SandboxChoice:
    level: IsolationLevel
    backend: Backend = Backend.PROCESS

    @property
    def namespaces(self) -> bool:
        return LAYERS[self.level].namespaces and self.backend == Backend.PROCESS


@dataclass(frozen=True)
class Trial:
    """What was tried on a sandbox. `failure` says why it could not even be made, or is empty."""

    choice: SandboxChoice
    attacks: tuple[AttackResult, ...] = ()
    failure: str = ""

    @property
    def flaw(self) -> str | None:
        """Why this sandbox is not to be used, as an end of a sentence; None: it holds."""
        if self.failure:
            return f"a sandbox cannot be made here: {self.failure}"
        through = [f"{one.name} ({one.seen})" for one in self.attacks if not one.contained]
        return f"its wall does not hold: {'; '.join(through)}" if through else None


def attempt(run: Run, facts: Facts, choice: SandboxChoice) -> Trial:
    try:
        with Bait() as bait:
            return _Attempt(run, facts, choice, bait).trial()
    except OSError as error:
        return Trial(choice, failure=f"no bait could be laid out: {error}")


@dataclass(frozen=True)
class _Exhaustion:
    """A run that uses up one limit. `codes` are the ends it may have."""

    name: str
    entry_point: str
    codes: frozenset[str]
    limits: Limits = _LIMITS
    parameters: Mapping[str, Any] = field(default_factory=dict)


class _Attempt:
    def __init__(self, run: Run, facts: Facts, choice: SandboxChoice, bait: Bait) -> None:
        self._run, self._facts, self._choice, self._bait = run, facts, choice, bait
        self._shared = _SHARED if choice.namespaces else ""
        mounts = (Mount(str(bait.shared), _SHARED, writable=True),) if self._shared else ()
        source = Path(selfcheck.__file__).read_text("utf-8")
        preload = ((_MODULE, source),)
        self._profile = Profile(choice.level, mounts, preload=preload, backend=choice.backend)
        self._attacks = [one for one in selfcheck.ATTACKS.values() if self._fits(one)]

    def trial(self) -> Trial:
        names = [one.name for one in self._attacks]
        details = {"names": names, "bait": self._bait.describe(self._shared)}
        result, output = self._run(self._profile, _LIMITS, _body("assail", details))
        if result.outcome != RunOutcome.SUCCESS:
            return Trial(self._choice, failure=str(result.error_message)[:_SEEN_LENGTH])
        attacks = [
            *self._judge(json.loads(output)),
            *(self._exhaust(one) for one in _exhaustions(self._facts, self._choice, self._bait)),
            *(
                self._attack_result(name, not harm, harm)
                for name, harm in self._bait.harm().items()
            ),
        ]
        return Trial(self._choice, tuple(attacks))

    def _fits(self, one: selfcheck.Attack) -> bool:
        return self._choice.level in one.levels and (self._choice.namespaces or not one.alone)

    def _judge(self, answers: dict[str, Any]) -> Iterator[AttackResult]:
        """Loot is a breach when it holds what only the host knows; it is not shown."""
        for one in self._attacks:
            got, seen = answers[one.name]
            if one.loot and got:
                got = self._bait.secret in seen
                seen = "the secret that lay there" if got else "nothing of it"
            yield self._attack_result(one.name, not got, seen)

    def _exhaust(self, one: _Exhaustion) -> AttackResult:
        body = _body(one.entry_point, one.parameters)
        result, _ = self._run(self._profile, one.limits, body)
        code = result.error_code or result.outcome
        return self._attack_result(one.name, code in one.codes, code)

    def _attack_result(self, name: str, contained: bool, seen: str) -> AttackResult:
        choice = self._choice
        return AttackResult(
            name, choice.level, choice.backend, contained, seen[:_SEEN_LENGTH] or "nothing"
        )


def _body(entry_point: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    program = {"name": _MODULE, "entry_point": entry_point}
    return {"program": program, "parameters": dict(parameters)}


def _exhaustions(facts: Facts, choice: SandboxChoice, bait: Bait) -> Iterator[_Exhaustion]:
    yield _Exhaustion(
        "use more memory than allowed",
        "exhaust_memory",
        frozenset({ErrorCode.MEMORY_LIMIT}),
        parameters={"bytes": 2 * _LIMITS.memory_bytes, "shared": facts.counted},
    )
    yield _Exhaustion(
        "use more processor time than allowed",
        "exhaust_processor",
        frozenset({ErrorCode.CPU_LIMIT}),
        replace(_LIMITS, cpu_s=0.05),
    )
    yield _Exhaustion(
        "take more time than allowed",
        "exhaust_patience",
        frozenset({ErrorCode.TIMEOUT}),
        replace(_LIMITS, wall_s=0.05),
    )
    yield _Exhaustion(
        "write more output than allowed", "exhaust_output", frozenset({ErrorCode.OUTPUT_LIMIT})
    )
    # Uncounted, a process that is refused is an error like any other; so is a full disk.
    uncounted = frozenset() if facts.counted else {ErrorCode.TOOL_ERROR}
    yield _Exhaustion(
        "make more processes than allowed",
        "exhaust_processes",
        frozenset({ErrorCode.PROCESS_LIMIT, *uncounted}),
        parameters={
            "most": 8 * _LIMITS.processes,
            "threads": choice.level == IsolationLevel.RESTRICTED,
            "mark": bait.mark,
        },
    )
    if choice.namespaces:  # else its private place is on the host's disk
        yield _Exhaustion(
            "fill more disk than allowed",
            "exhaust_disk",
            frozenset({ErrorCode.DISK_LIMIT, ErrorCode.TOOL_ERROR}),
            parameters={"bytes": 4 * _LIMITS.tmp_bytes},
        )
