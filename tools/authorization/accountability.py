"""The gate that requires a working audit log of the organization: no call runs that could not be
proved."""

from audit.log import log_status
from tools.errors import AuditHalted


def check(organization: str) -> None:
    """Checks the log's current state, in the open transaction. Raises `AuditHalted`."""
    try:
        log_status.check_halted(organization)
    except log_status.LogHalted as halted:
        raise _refusal() from halted


def check_lately(organization: str) -> None:
    """Checks a state that is at most a second old. Raises `AuditHalted`."""
    try:
        log_status.check_halted_cached(organization)
    except log_status.LogHalted as halted:
        raise _refusal() from halted


def _refusal() -> AuditHalted:
    """The reason is for administrators: it is in the record AUDIT.HALTED."""
    return AuditHalted(
        "The audit log of this organization does not agree with what was published of it, so "
        "nothing is executed. An administrator runs manage.py audit_verify, then audit_accept.",
        gate="accountable",
    )
