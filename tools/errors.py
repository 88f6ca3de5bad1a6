"""The hierarchy of API errors. Each class sets the HTTP status and says whether client or server is
at fault.

`message` is written for the caller and says what to do next; `details` holds plain values only.
"""

from typing import Any


class ToolcribError(Exception):
    """The base of all errors that the API renders."""

    code = "error"
    http_status = 500
    retry_after_s: int | None = None

    def __init__(self, message: str, *, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details = details

    @property
    def wait_s(self) -> int | None:
        """In how many seconds to try again."""
        return self.details.get("resets_in_s") or self.retry_after_s

    def field_errors(self) -> list[dict[str, str]]:
        """The errors by field; where there are none, the message as the error of no field."""
        return self.details.get("errors") or [{"field": "", "message": self.message}]


class Malformed(ToolcribError):
    """The request cannot be read, or a field of it is wrong."""

    code, http_status = "malformed", 400


class TooLarge(Malformed):
    """The request is larger than allowed."""

    code, http_status = "too_large", 413


class Unauthenticated(ToolcribError):
    code, http_status = "unauthenticated", 401


class Forbidden(ToolcribError):
    """The caller is known and may not do this."""

    code, http_status = "forbidden", 403


class NotFound(ToolcribError):
    """The resource does not exist or is not the caller's: the answer is the same for both."""

    code, http_status = "not_found", 404


class Gone(ToolcribError):
    """The resource existed and was deleted."""

    code, http_status = "gone", 410


class Conflict(ToolcribError):
    code, http_status = "conflict", 409


class ChangedMeanwhile(ToolcribError):
    """A precondition of the request is false for the current resource. Nothing was done."""

    code, http_status = "changed_meanwhile", 412


class Mismatch(ToolcribError):
    """An idempotency key was reused with another request."""

    code, http_status = "idempotency_key_reused", 422


class Shed(ToolcribError):
    """Load shedding: too much waits or runs already. Counted, and audited as sums: the call has no
    row."""

    code, http_status = "queue_full", 429


class Overloaded(Shed):
    """Calls do not start in time, for any caller."""

    code, http_status, retry_after_s = "overloaded", 503, 5


class Unavailable(ToolcribError):
    """A temporary failure; the same request may succeed later."""

    code, http_status, retry_after_s = "unavailable", 503, 1


class Refused(ToolcribError):
    """A gate refused an execution. Recorded and audited; nothing ran."""

    code, http_status = "permission_denied", 403
    status = "PermissionDenied"


class TooManyHeld(Refused):
    """Too many calls of one account await approval already."""

    code, http_status, retry_after_s = "too_many_held", 429, 60


class RateLimited(Refused):
    """Called too often within a minute. The call was not counted."""

    code, http_status = "rate_limited", 429


class QuotaExceeded(Refused):
    """A quota or a budget of the caller has no room for the call. Nothing was reserved."""

    code, http_status = "quota_exceeded", 429


class AuditHalted(Refused):
    """The audit log of the caller's organization does not match its published checkpoints."""

    code, http_status, retry_after_s = "audit_halted", 503, 60


class InvalidCall(Refused):
    """The parameters do not fit the tool's schema."""

    code, http_status = "invalid_parameters", 400
    status = "ValidationError"


class InvalidDefinition(Malformed):
    """A tool definition with one entry per wrong field under `details["errors"]`."""

    code = "invalid_definition"
