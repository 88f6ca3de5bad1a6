"""What is seen of one attack from outside, and the judgements on it.

A judge says in a few words what worked, or nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome

type Judge = Callable[["Evidence"], str]

# Only who watches a run may say these about it; a MemoryError inside is an honest MEMORY_LIMIT.
OURS = frozenset(ErrorCode) - {
    ErrorCode.TOOL_ERROR,
    ErrorCode.INVALID_RESULT,
    ErrorCode.MEMORY_LIMIT,
    ErrorCode.EXITED,
}


@dataclass(frozen=True)
class Evidence:
    """`got` is what the attack itself reported, `text` all text that came out of the run."""

    got: Any
    outcome: RunOutcome
    code: str
    text: str
    cpu_ms: float = 0
    knocks: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    survivors: int = 0
    secret_leaked: bool = False
    canary_dead: bool = False
    overstayed: bool = False
    let_through: tuple[str, ...] = ()


def got_something(evidence: Evidence) -> str:
    return f"it got {ascii(evidence.got)[:200]}" if evidence.got else ""


def leaked_the_secret(evidence: Evidence) -> str:
    return "the secret came out" if evidence.secret_leaked else ""


def knocked(evidence: Evidence) -> str:
    return f"it reached {', '.join(evidence.knocks)}" if evidence.knocks else ""


def changed_the_host(evidence: Evidence) -> str:
    return f"it changed {', '.join(evidence.changes)}" if evidence.changes else ""


def left_a_trap(evidence: Evidence) -> str:
    return f"it left {', '.join(evidence.left)}" if evidence.left else ""


def outlived_its_run(evidence: Evidence) -> str:
    return f"{evidence.survivors} processes live on" if evidence.survivors else ""


def stayed_too_long(evidence: Evidence) -> str:
    return "it ran on after its time" if evidence.overstayed else ""


def killed_a_stranger(evidence: Evidence) -> str:
    return "a process outside died" if evidence.canary_dead else ""


def was_believed(evidence: Evidence) -> str:
    """For answers that no reader may accept."""
    believed = evidence.outcome == RunOutcome.SUCCESS
    return f"it was believed: {ascii(evidence.got)[:200]}" if believed else ""


def spoke_in_our_name(evidence: Evidence) -> str:
    """An end that only the one who watches may state."""
    stated = evidence.code in OURS or evidence.outcome not in (
        RunOutcome.SUCCESS,
        RunOutcome.FAILED,
    )
    return f"the run ended {evidence.outcome} {evidence.code}" if stated else ""


def blamed_memory(evidence: Evidence) -> str:
    return "the end was taken for one of memory" if evidence.code == "MEMORY_LIMIT" else ""


def was_let_through(evidence: Evidence) -> str:
    """For runs that may reach nothing of what they ask for."""
    return f"it was let through to {evidence.let_through}" if evidence.let_through else ""


def wrote_too_much(evidence: Evidence) -> str:
    return f"{len(evidence.text)} characters came out" if len(evidence.text) > 1 << 20 else ""


def got(value: object) -> Judge:
    """For an answer that may come, unless it is this one."""
    return lambda evidence: f"it got {value!r}" if evidence.got == value else ""


def had_control_of_the_terminal(evidence: Evidence) -> str:
    """Bytes that no table of PostgreSQL takes; what a page shows it escapes itself."""
    try:
        evidence.text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair came out"
    return "NUL came out" if "\0" in evidence.text else ""


def hid_its_use(evidence: Evidence) -> str:
    """For attacks that use at least 50 ms of processor time."""
    return f"only {evidence.cpu_ms} ms were counted" if evidence.cpu_ms < 40 else ""


ALWAYS: tuple[Judge, ...] = (
    leaked_the_secret,
    knocked,
    changed_the_host,
    left_a_trap,
    killed_a_stranger,
    stayed_too_long,
)
