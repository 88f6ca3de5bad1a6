"""The statuses and events of an execution's result (specification S3, 2.2), and its rate limit."""

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    TIMEOUT = "Timeout"
    CANCELLED = "Cancelled"
    REQUIRES_CONFIRMATION = "RequiresConfirmation"
    SANDBOX_ERROR = "SandboxError"
    PERMISSION_DENIED = "PermissionDenied"
    VALIDATION_ERROR = "ValidationError"


OPEN = frozenset({Status.PENDING, Status.RUNNING, Status.REQUIRES_CONFIRMATION})
FINAL = frozenset(Status) - OPEN
REFUSED = frozenset({Status.PERMISSION_DENIED, Status.VALIDATION_ERROR})
FAILURES = frozenset({Status.FAILED, Status.TIMEOUT, Status.SANDBOX_ERROR})


class EventType(StrEnum):
    STARTED = "Started"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TIMEOUT = "Timeout"
    WARNING = "Warning"


TERMINAL = frozenset({EventType.COMPLETED, EventType.FAILED, EventType.TIMEOUT})


def event_for(status: Status) -> EventType:
    """The one terminal event of an execution that ended with `status`."""
    if status == Status.SUCCESS:
        return EventType.COMPLETED
    return EventType.TIMEOUT if status == Status.TIMEOUT else EventType.FAILED


@dataclass(frozen=True, slots=True)
class Rate:
    """One admitted call. `used` counts it; `resets_in_s` is when the oldest call leaves the window.
    `counted_by` is redis or postgres, `ticket` identifies the call in Redis."""

    limit: int
    used: int
    resets_in_s: int
    counted_by: str
    ticket: bytes = field(default=b"", repr=False)

    def as_dict(self) -> dict[str, int]:
        return {"limit": self.limit, "used": self.used, "resets_in_s": self.resets_in_s}
