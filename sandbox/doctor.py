"""Attack every sandbox this machine can make before anything is served, and report which hold.

Each level gets one run that attacks it from inside, and one for each limit that has to end it.
What can be seen from outside is judged outside.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sandbox.daemon.trials.capability import Capability, LevelCapability
from sandbox.daemon.trials.trial import SandboxChoice, Trial, attempt
from sandbox.machine import DEGRADED_NEEDS_ABI, Facts, Run, Trouble, remedies
from sandbox.spec import Backend, IsolationLevel

ORGANIZATION = "sandboxd"  # whose templates the trials use; no organization has this name
_DEGRADED = SandboxChoice(IsolationLevel.STANDARD, Backend.DEGRADED)


def examine(run: Run, facts: Facts) -> Capability:
    """`run` performs one real run and blocks until its end; two threads call it."""
    began = time.monotonic()
    capability = conclude(try_all_backends(run, facts), facts)
    took_ms = round((time.monotonic() - began) * 1000, 1)
    return replace(capability, checked_at=round(time.time(), 3), checked_ms=took_ms)


def try_all_backends(run: Run, facts: Facts) -> list[Trial]:
    """Two sandboxes at a time. What Standard cannot have, the stricter levels cannot have
    either."""

    def try_sandbox(choice: SandboxChoice) -> Trial:
        return attempt(run, facts, choice)

    none, standard, *stricter = (SandboxChoice(level) for level in IsolationLevel)
    with ThreadPoolExecutor(2, thread_name_prefix="doctor") as pool:
        first = list(pool.map(try_sandbox, (none, standard)))
        if first[1].failure:
            rest = [replace(first[1], choice=choice) for choice in stricter]
        else:
            rest = list(pool.map(try_sandbox, stricter))
        return [*first, *rest, *([try_sandbox(_DEGRADED)] if _may_degrade(facts) else [])]


def conclude(trials: Sequence[Trial], facts: Facts) -> Capability:
    """From the results to what is served: only levels whose sandbox was seen to hold."""
    tried = {trial.choice: trial for trial in trials}
    levels = {level: _verdict(tried[SandboxChoice(level)], facts) for level in IsolationLevel}
    stands_in = _is_replaced(tried)
    if stands_in:
        levels[IsolationLevel.STANDARD] = LevelCapability(True, backend=Backend.DEGRADED)
    found = remedies(facts, Trouble(_no_namespaces(tried), _leaks(trials), stands_in))
    available = [level for level, verdict in levels.items() if verdict.available]
    return Capability(
        ceiling=available[-1] if available else None,
        cgroup_mode=facts.cgroup_mode,
        weighted=facts.weighted,
        accounts_flaw=facts.accounts_flaw,
        reasons=tuple(remedy.reason for remedy in found),
        fix=tuple(dict.fromkeys(remedy.fix for remedy in found if remedy.fix)),
        levels=levels,
        backends=_backends(tried, facts),
        attacks=tuple(attack for trial in trials for attack in trial.attacks),
    )


def _verdict(trial: Trial, facts: Facts) -> LevelCapability:
    if trial.flaw is not None:
        return LevelCapability(False, (trial.flaw,))
    return LevelCapability(True, network=facts.egress_flaw is None)


def _is_replaced(tried: dict[SandboxChoice, Trial]) -> bool:
    degraded = tried.get(_DEGRADED)
    return bool(_no_namespaces(tried)) and degraded is not None and degraded.flaw is None


def _no_namespaces(tried: dict[SandboxChoice, Trial]) -> str:
    return tried[SandboxChoice(IsolationLevel.STANDARD)].failure


def _leaks(trials: Sequence[Trial]) -> Iterator[str]:
    """Every sandbox with a flaw of its own: the lack of namespaces is one for all."""
    standard = SandboxChoice(IsolationLevel.STANDARD)
    shared = next(trial.failure for trial in trials if trial.choice == standard)
    for trial in trials:
        if trial.flaw and not (trial.choice.namespaces and shared):
            degraded = " (degraded)" if trial.choice.backend == Backend.DEGRADED else ""
            yield f"Level {trial.choice.level}{degraded}: {trial.flaw}."


def _backends(tried: dict[SandboxChoice, Trial], facts: Facts) -> dict[Backend, str | None]:
    flaws = [trial.flaw for choice, trial in tried.items() if choice.namespaces]
    return {
        Backend.PROCESS: None if None in flaws else flaws[0],
        Backend.DEGRADED: _flaw_of_degraded(tried.get(_DEGRADED), facts),
        **facts.backends,
    }


def _may_degrade(facts: Facts) -> bool:
    return facts.degraded_allowed and facts.landlock_abi >= DEGRADED_NEEDS_ABI


def _flaw_of_degraded(trial: Trial | None, facts: Facts) -> str | None:
    if not facts.degraded_allowed:
        return "it is not allowed here"
    if trial is None:
        return f"it needs Landlock ABI {DEGRADED_NEEDS_ABI}, and this kernel has less"
    return trial.flaw
