"""Which calls need a person."""

from dataclasses import dataclass
from typing import Any

from tools.errors import Refused
from tools.policy.decision import Question


@dataclass(frozen=True)
class Need:
    """Why a person is asked, and how many must agree."""

    reasons: tuple[str, ...]
    approvals: int = 1


def needed(question: Question, call: Any) -> Need | None:
    """Until a person can be asked, a call that needs one is refused, never let through."""
    if call.require_confirmation or question.tool.definition.raw["requires_confirmation"]:
        raise Refused(
            f"The tool {question.tool.name} runs only when a person confirms the call, and this "
            "installation has no confirmation queue yet.",
            code="confirmation_unavailable",
            gate="confirmation",
        )
    return None
