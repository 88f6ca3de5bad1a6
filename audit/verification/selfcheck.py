"""Daily verification: every log is verified and compared with its anchors, and the result is on
record.

It goes on from the last verified checkpoint, and takes the whole log once a week.

A record with the outcome `failure` raises a critical alert (the rule `verification_failed`).
"""

import logging

from django.db import DatabaseError

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import key_files
from audit.verification.inspection import VerificationRequest, inspect_logs
from audit.verification.verification_report import VerificationReport
from audit.verification.verified import SELFCHECK_ACTOR, verified_details

log = logging.getLogger(__name__)
_MOST_RECORDED = 20


def verify_all_logs() -> list[VerificationReport]:
    """In one process, beside the worker's other tasks: it is not urgent. Each log is reported as
    soon as its result is known."""
    reports = []
    for report in inspect_logs(VerificationRequest(resume=True)):
        try:
            _record_result(report)
        except (DatabaseError, OSError):  # of this log: the others are still reported
            log.exception("that the log %s was verified could not be put on record", report.log)
        reports.append(report)
    return reports


def _record_result(report: VerificationReport) -> None:
    if report.damaged:
        log.critical("the audit log %s is damaged: run audit_verify", report.log)
    worst = next((one for one in report.findings if not one.accepted), None)
    said = report.as_dict()
    verified, root = verified_details(report, key_files.derived_key("record", report.log))
    record(
        Event.AUDIT_VERIFY,
        by=Actor("system", SELFCHECK_ACTOR, report.log),
        outcome=Outcome.FAILURE if report.damaged else Outcome.SUCCESS,
        subject=report.log,
        reason=str(worst.kind) if worst is not None else "",
        digest=root,
        details=said
        | {"findings": said["findings"][:_MOST_RECORDED], "found": len(report.findings)}
        | verified,
    )
