"""The parameters of an agent run: its question and the limits on what it may spend."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

REACT, PLAN = "react", "plan"
PATTERNS = (REACT, PLAN)
MOST_QUESTION = 20_000  # characters
MOST_HISTORY = 50  # steps
ITERATIONS, MOST_ITERATIONS = 10, 50
TOKENS, MOST_TOKENS = 100_000, 2_000_000
THRESHOLD = 0.7


class UnusableParameters(Exception):
    """The parameters are invalid; the message is for the caller."""


@dataclass(frozen=True, slots=True)
class PastStep:
    """A step of a history that the request brought along (specification S1, 2.2)."""

    thought: str
    action: str
    arguments: dict[str, Any]
    observation: str


@dataclass(frozen=True, slots=True)
class AgentRunParameters:
    """`cost` is None where the caller's own budget is the only bound; `thresholds` are by tool."""

    question: str
    pattern: str
    history: tuple[PastStep, ...]
    model: str
    iterations: int
    tokens: int
    cost: Decimal | None
    threshold: float
    thresholds: dict[str, float]
    continues: UUID | None
    replays: UUID | None

    @classmethod
    def from_call(cls, given: dict[str, Any]) -> "AgentRunParameters":
        """From a call's parameters, whose schema may have been switched off.

        Raises `UnusableParameters`.
        """
        try:
            return cls(
                question=_parse_question(given["question"]),
                pattern=given["pattern"] if given["pattern"] in PATTERNS else REACT,
                history=tuple(map(_parse_step, given["history"][:MOST_HISTORY])),
                model=str(given["model"]),
                iterations=_clamp(given["max_iterations"], MOST_ITERATIONS),
                tokens=_clamp(given["max_tokens"], MOST_TOKENS),
                cost=_parse_amount(given["max_cost"]),
                threshold=float(given["confidence"]),
                thresholds={str(name): float(one) for name, one in given["thresholds"].items()},
                continues=_parse_id(given["continues"]),
                replays=_parse_id(given["replays"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise UnusableParameters(
                "The request of an agent is not as its parameters say."
            ) from None

    def threshold_of(self, tool_name: str) -> float:
        """Confidence below which a step needs an approval."""
        return self.thresholds.get(tool_name, self.threshold)


def _parse_question(question: Any) -> str:
    if not isinstance(question, str) or not 0 < len(question) <= MOST_QUESTION:
        raise ValueError
    return question


def _clamp(number: Any, most: int) -> int:
    return max(1, min(most, int(number)))


def _parse_amount(text: Any) -> Decimal | None:
    if text in (None, ""):
        return None
    amount = Decimal(str(text))
    if not amount.is_finite():  # with NaN nothing can be compared
        raise ValueError
    return amount


def _parse_id(text: Any) -> UUID | None:
    return UUID(str(text)) if text else None


def _parse_step(step: dict[str, Any]) -> PastStep:
    arguments = step.get("arguments")
    return PastStep(
        str(step.get("thought") or ""),
        str(step.get("action") or ""),
        arguments if isinstance(arguments, dict) else {},
        str(step.get("observation") or ""),
    )
