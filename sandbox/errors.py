"""The codes of a run's end, and the two things that can be wrong with a request itself."""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Codes of our own; a tool may end with a code of its own making beside these."""

    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    CPU_LIMIT = "CPU_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    PROCESS_LIMIT = "PROCESS_LIMIT"
    DISK_LIMIT = "DISK_LIMIT"
    QUOTA_LIMIT = "QUOTA_LIMIT"
    OPERATIONS_LIMIT = "OPERATIONS_LIMIT"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_RESULT = "INVALID_RESULT"
    EXITED = "EXITED"
    ISOLATION_UNAVAILABLE = "ISOLATION_UNAVAILABLE"
    SANDBOX_UNREACHABLE = "SANDBOX_UNREACHABLE"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    EGRESS_UNAVAILABLE = "EGRESS_UNAVAILABLE"
    NOT_BEGUN = "NOT_BEGUN"  # given up before anything of the tool ran
    LOST = "LOST"  # it had begun, or may have, and its progress is unknown


# With these nothing of the tool ran.
NEVER_RAN = frozenset(
    {
        ErrorCode.ISOLATION_UNAVAILABLE,
        ErrorCode.SANDBOX_UNREACHABLE,
        ErrorCode.LAUNCH_FAILED,
        ErrorCode.EGRESS_UNAVAILABLE,
        ErrorCode.NOT_BEGUN,
    }
)


class SandboxError(Exception):
    """Root of what this package raises."""


class SpecInvalid(SandboxError, ValueError):
    """An invalid spec: a wrong type, an impossible limit, an unclean path."""


class RunRefused(SandboxError):
    """The run was not started; `code` and the text say why."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
