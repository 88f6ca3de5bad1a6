"""How far each log was verified, as a record of the log itself says.

The record has a mac under a key outside the database, like every other: an attacker who can only
write to the database can remove it, or leave an older one, and then more is verified, never less.
"""

from datetime import datetime, timedelta
from typing import Any

import orjson
from django.db import connection
from django.utils import timezone

from audit.events import Event, Outcome
from audit.log.leaves import body_sql
from audit.verification.chunks import mac_function
from audit.verification.verification_report import VerificationReport, VerifiedTree

SELFCHECK_ACTOR = "selfcheck"
WHOLE_EVERY = timedelta(days=7)
_MOST_RESULTS = 20  # forged records may come before the genuine one
_NEWEST_SQL = f"""
SELECT {body_sql("r")}, r.mac FROM audit_auditrecord r
WHERE r.organization = %s AND r.code = '{Event.AUDIT_VERIFY}' AND r.actor = '{SELFCHECK_ACTOR}'
    AND r.outcome = '{Outcome.SUCCESS}'
ORDER BY r.occurred_at DESC, r.id DESC LIMIT {_MOST_RESULTS}
"""  # noqa: S608


def newest_verified(name: str, record_key: bytes) -> VerifiedTree | None:
    """What the log is verified from next. None where it has to be verified as a whole: nothing is
    on record, or the last time was too long ago."""
    told = _newest_result(name, record_key)
    if told is None:
        return None
    body, verified = told
    whole_at = datetime.fromisoformat(body["details"]["whole_at"])
    return verified if timezone.now() - whole_at < WHOLE_EVERY else None


def verified_details(report: VerificationReport, record_key: bytes) -> tuple[dict[str, Any], str]:
    """What is put on record of a log in which nothing was wrong, and the digest: its root."""
    verified = report.verified
    if report.damaged or verified is None:
        return {}, ""
    whole_at = timezone.now().isoformat()
    if report.since and (told := _newest_result(report.log, record_key)) is not None:
        whole_at = told[0]["details"]["whole_at"]
    said = {"size": verified.size, "at": verified.at.isoformat()}
    return {"verified": said, "whole_at": whole_at}, f"sha256:{verified.root.hex()}"


def _newest_result(name: str, record_key: bytes) -> tuple[dict[str, Any], VerifiedTree] | None:
    mac = mac_function(record_key)
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST_SQL, [name])
        rows = [(body.encode(), bytes(made)) for body, made in cursor.fetchall()]
    for body, made in rows:
        if mac(body) != made:
            continue
        said = orjson.loads(body)
        if "verified" in said["details"]:
            return said, _parse_verified(said)
    return None


def _parse_verified(said: dict[str, Any]) -> VerifiedTree:
    told = said["details"]["verified"]
    root = bytes.fromhex(said["subject_digest"].removeprefix("sha256:"))
    return VerifiedTree(told["size"], root, datetime.fromisoformat(told["at"]))
