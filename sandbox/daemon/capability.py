"""What this machine can really do, found by doing it once: a real run that looks around."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.levels import at_least
from sandbox.spec import IsolationLevel, Limits, Outcome, Profile, SandboxResult

PROBE_PROFILE = Profile(
    IsolationLevel.STANDARD,
    preload=(
        (
            "selfcheck",
            (Path(__file__).parent.parent / "inside" / "selfcheck.py").read_text("utf-8"),
        ),
    ),
)
PROBE_LIMITS = Limits(wall_s=10, cpu_s=10, memory_bytes=64 << 20)
PROBE_ORGANIZATION = "sandboxd"


@dataclass(frozen=True)
class Capability:
    """`ceiling` is the highest level that may be served; None serves nothing."""

    ceiling: IsolationLevel | None
    cgroup_mode: str
    reasons: list[str] = field(default_factory=list)

    def refusal(self, level: IsolationLevel) -> str | None:
        """Why a run of this level cannot be had here, or None. Never a weaker run instead."""
        if self.ceiling is None:
            return self.reasons[0]
        if level == IsolationLevel.NONE or not at_least(self.ceiling, level):
            return f"isolation level {level} is not available here"
        return None

    def to_wire(self) -> dict[str, Any]:
        return {
            "level_ceiling": self.ceiling,
            "cgroup_mode": self.cgroup_mode,
            "reasons": self.reasons,
        }


def verdict(result: SandboxResult, output: bytes, cgroup_mode: str) -> Capability:
    if result.outcome != Outcome.SUCCESS:
        reason = f"a sandbox cannot be made here: {result.error_message}"
        return Capability(None, cgroup_mode, [reason])
    return judge(json.loads(output), cgroup_mode)


def judge(facts: dict[str, Any], cgroup_mode: str) -> Capability:
    """`facts` come from inside/selfcheck.py; every one that is not as expected is a hole."""
    holes = [
        f"{name} is {facts.get(name)!r}"
        for name, good in _EXPECTED.items()
        if facts.get(name) != good
    ]
    if holes:
        return Capability(None, cgroup_mode, [f"the sandbox leaks: {', '.join(holes)}"])
    reasons = [] if cgroup_mode != "none" else ["no cgroups: memory and CPU are approximate"]
    return Capability(IsolationLevel.RESTRICTED, cgroup_mode, reasons)


_EXPECTED = {
    "pid": 1,
    "capabilities": 0,
    "bounding": 0,
    "no_new_privs": 1,
    "seccomp": 2,
    "interfaces": ["lo"],
    "root_writable": False,
    "mount_refused": True,
    "socket_refused": True,
}
