"""The statuses and error codes of an execution's result (specification S3, 2.2)."""

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
