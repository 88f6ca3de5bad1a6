"""What somebody asks for: one call of one tool, before anything is known about it."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from audit.canonical import commitment
from tools.models.ids import new_id


@dataclass(frozen=True, slots=True)
class Parent:
    """The composite call that makes a call, and its own name for it. No door says so."""

    id: UUID
    place: str
    depth: int


@dataclass(frozen=True)
class Call:
    """`group` absent (None) is not the same as `[]` (ruling 2)."""

    tool_name: str
    parameters: dict[str, Any]
    group: list[str] | None = None
    state: str | None = None
    session: str | None = None
    timeout_s: float | None = None
    require_confirmation: bool = False
    confirmation_reason: str = ""  # what the person is told of it, instead of that it was wished
    idempotency_key: str | None = None
    id: UUID = field(default_factory=new_id)
    parent: Parent | None = None
    at_its_door: bool = False  # a batch that was sent to the address for batches
    retry_of: UUID | None = None  # the call that failed, where this is that one once more
    plain: bool = False  # what looks like a reference is data: somebody else may have written it

    @property
    def options(self) -> dict[str, Any]:
        """What the caller tightened, as a confirmation binds it; by which door it came, and
        whether what it makes calls of is data."""
        options = {"timeout_s": self.timeout_s, "require_confirmation": self.require_confirmation}
        marks = {"at_its_door": self.at_its_door, "plain": self.plain}
        return options | {name: True for name, holds in marks.items() if holds}

    @cached_property
    def fingerprint(self) -> str:
        """What must be equal when an idempotency key comes back."""
        return commitment(
            {
                "tool_name": self.tool_name,
                "parameters": self.parameters,
                "group": self.group,
                "state": self.state,
                "session": self.session,
                "timeout_s": self.timeout_s,
                "require_confirmation": self.require_confirmation,
            }
        )
