"""Verify logs of the database against the keys and anchors of this installation or others.

The daily verification resumes at the last verified checkpoint, as a record of the log itself says,
and takes the whole log once a week; its result is on record. An attacker who can only write to the
database can remove that record, and then more is verified, never less. The outcome `failure` raises
a critical alert (the rule `verification_failed`).
"""

import base64
import json
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
from django.db import DatabaseError, connection
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import anchors, key_files
from audit.log.anchors import BadAnchor
from audit.log.checkpoint_publication import LogDamaged, check_keys
from audit.log.leaves import body_sql
from audit.models import AuditLog
from audit.verification.chunks import Chunk, ChunkTask, MacKeys, examine_chunk, mac_function
from audit.verification.database_source import DatabaseSource, log_names
from audit.verification.log_source import LogSource
from audit.verification.log_verification import (
    SINGLE_PROCESS,
    CannotResume,
    VerificationTrust,
    VerificationWorkers,
    verify_log,
)
from audit.verification.statements import PublishedNote
from audit.verification.verification_report import (
    FindingKind,
    VerificationFinding,
    VerificationReport,
    VerifiedTree,
)

SELFCHECK_ACTOR = "selfcheck"
WHOLE_EVERY = timedelta(days=7)
_MOST_RESULTS = 20  # forged records may come before the genuine one
_NEWEST_SQL = f"""
SELECT {body_sql("r")}, r.mac FROM audit_auditrecord r
WHERE r.organization = %s AND r.code = '{Event.AUDIT_VERIFY}' AND r.actor = '{SELFCHECK_ACTOR}'
    AND r.outcome = '{Outcome.SUCCESS}'
ORDER BY r.occurred_at DESC, r.id DESC LIMIT {_MOST_RESULTS}
"""  # noqa: S608
log = logging.getLogger(__name__)
_AHEAD = 4  # batches or chunks that may wait for the one before them
_FAILURES = (
    OSError,
    ValueError,
    LookupError,
    DatabaseError,
    psycopg.Error,
    sqlite3.Error,
    BrokenExecutor,
)
_MOST_RECORDED = 20


def newest_verified(name: str, record_key: bytes) -> VerifiedTree | None:
    """What the log is verified from next. None where it has to be verified as a whole: nothing is
    on record, or the last time was too long ago."""
    newest = _newest_result(name, record_key)
    if newest is None:
        return None
    body, verified = newest
    whole_at = datetime.fromisoformat(body["details"]["whole_at"])
    return verified if timezone.now() - whole_at < WHOLE_EVERY else None


def verified_details(report: VerificationReport, record_key: bytes) -> tuple[dict[str, Any], str]:
    """What is put on record of a log in which nothing was wrong, and the digest: its root."""
    verified = report.verified
    if report.damaged or verified is None:
        return {}, ""
    whole_at = timezone.now().isoformat()
    if report.since and (newest := _newest_result(report.log, record_key)) is not None:
        whole_at = newest[0]["details"]["whole_at"]
    tree = {"size": verified.size, "at": verified.at.isoformat()}
    return {"verified": tree, "whole_at": whole_at}, f"sha256:{verified.root.hex()}"


class BadRequest(Exception):
    """There is nothing to verify as asked; the message says why."""


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """`anchor` is a file; `pubkeys` are verifier keys: with one, no key of ours is used. Files
    of records that left may be kept `elsewhere`, and are not missed then. With `resume`, a log is
    verified from the last verified checkpoint on, where one is on record."""

    log: str | None = None
    first: int = 0
    anchor: str | None = None
    pubkeys: tuple[str, ...] = ()
    elsewhere: bool = False
    resume: bool = False


def inspect_logs(
    question: VerificationRequest, pool: Executor | None = None
) -> Iterator[VerificationReport]:
    """A report of each log, as it is made. Raises `BadRequest`."""
    if question.first < 0:
        raise BadRequest("--from is an index: 0 or more.")
    if question.log is None and (question.pubkeys or question.anchor):
        raise BadRequest("A key or an anchor is one log's: say which with --log.")
    known = _all_names() if question.log is None else {question.log}
    for name in sorted(known):
        yield _inspect_log(name, question, pool)


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


def _newest_result(name: str, record_key: bytes) -> tuple[dict[str, Any], VerifiedTree] | None:
    mac = mac_function(record_key)
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST_SQL, [name])
        rows = [(body.encode(), bytes(made)) for body, made in cursor.fetchall()]
    for body, made in rows:
        if mac(body) != made:
            continue
        result = orjson.loads(body)
        if "verified" in result["details"]:
            return result, _parse_verified(result)
    return None


def _parse_verified(body: dict[str, Any]) -> VerifiedTree:
    newest = body["details"]["verified"]
    root = bytes.fromhex(body["subject_digest"].removeprefix("sha256:"))
    return VerifiedTree(newest["size"], root, datetime.fromisoformat(newest["at"]))


def _all_names() -> set[str]:
    try:
        return {*log_names(), *anchors.anchored_logs()}
    except OSError as error:  # each log in the database is reported by itself
        log.critical("the anchors cannot be read: %s", error)
        return {*log_names()}


def _inspect_log(
    name: str, question: VerificationRequest, pool: Executor | None
) -> VerificationReport:
    """A log that cannot be verified does not prevent the others from being verified."""
    try:
        return _verify_log(name, question, pool)
    except BadAnchor as error:
        finding = VerificationFinding(FindingKind.BAD_SIGNATURE, None, str(error))
    except LogDamaged as error:
        finding = VerificationFinding(FindingKind.WRONG_KEY, None, str(error))
    except _FAILURES as error:
        log.exception("the log %s could not be verified", name)
        finding = VerificationFinding(
            FindingKind.NOT_VERIFIED, None, f"it could not be verified: {error}"
        )
        if not connection.in_atomic_block:
            connection.close()  # the server may have ended it
    return VerificationReport(name, 0, 0, 0, (finding,))


def _verify_log(
    name: str, question: VerificationRequest, pool: Executor | None
) -> VerificationReport:
    trust = _make_trust(name, question)
    if question.resume and trust.keys is not None:
        trust = replace(trust, verified=newest_verified(name, trust.keys.record))
    key = trust.keys.record if trust.keys else None
    source = DatabaseSource(name, key, elsewhere=question.elsewhere)
    if question.log is not None and not _log_exists(name, question):
        raise BadRequest(f"There is no log of an organization {name}.")
    try:
        return verify_log(source, trust, question.first, _workers(pool))
    except CannotResume as reason:
        if trust.verified is None:
            raise BadRequest(f"{reason}: verify the log from the beginning.") from None
        log.warning("the log %s is verified from the beginning: %s", name, reason)
    return _verify_log(name, replace(question, resume=False), pool)


def _log_exists(name: str, question: VerificationRequest) -> bool:
    known = AuditLog.objects.filter(name=name).exists() or question.anchor is not None
    return known or anchors.newest_anchor(name) is not None or name in log_names()


def _make_trust(name: str, question: VerificationRequest) -> VerificationTrust:
    published, whole = _read_published(name, question), question.anchor is None
    if question.pubkeys:
        return _external_trust(question.pubkeys, published, whole)
    check_keys(name, anchors.newest_anchor(name))
    keys = MacKeys(key_files.derived_key("record", name), key_files.derived_key("place", name))
    return VerificationTrust(
        key_files.log_origin(name), [*key_files.trusted_keys(name).values()], published, keys, whole
    )


def _external_trust(
    pubkeys: Iterable[str], published: Iterable[PublishedNote], whole: bool
) -> VerificationTrust:
    """Of a verifier who has only public keys."""
    read = [_read_key(text) for text in pubkeys]
    if len({origin for origin, _ in read}) > 1:
        raise BadRequest("The keys of --pubkey are of different logs.")
    return VerificationTrust(read[0][0], [public for _, public in read], published, whole=whole)


def _read_published(name: str, question: VerificationRequest) -> Iterable[PublishedNote]:
    if question.anchor is None:
        return (PublishedNote(anchor.note) for anchor in anchors.read_anchors(name))
    try:
        content = Path(question.anchor).read_text("utf-8")
        if content.startswith("{"):
            return [PublishedNote(str(json.loads(line)["note"])) for line in content.splitlines()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRequest(f"The anchors cannot be read: {error}.") from None
    return [PublishedNote(content)]


def _read_key(text: str) -> tuple[str, bytes]:
    try:
        name, _, encoded = text.split("+", 2)
        public = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise BadRequest("--pubkey is name+id+base64, as audit_keys prints it.") from None
    if len(public) != 33 or public[0] != 1:
        raise BadRequest("--pubkey is not an Ed25519 key.")
    return name, public[1:]


def _workers(pool: Executor | None) -> VerificationWorkers:
    if pool is None:
        return SINGLE_PROCESS

    def spread[Asked, Answered](
        function: Callable[[Asked], Answered], batches: Iterable[Asked]
    ) -> Iterator[Answered]:
        return _map_ahead(pool, function, batches)

    def examined(source: LogSource, tasks: Iterable[ChunkTask]) -> Iterator[Chunk]:
        return spread(partial(examine_chunk, source), tasks)

    return VerificationWorkers(examined, spread)


def _map_ahead[Asked, Answered](
    pool: Executor, function: Callable[[Asked], Answered], batches: Iterable[Asked]
) -> Iterator[Answered]:
    """The answers in the order of the batches, of which a few are worked on at a time."""
    waiting: deque[Future[Answered]] = deque()
    for batch in batches:
        waiting.append(pool.submit(function, batch))
        if len(waiting) >= _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _record_result(report: VerificationReport) -> None:
    if report.damaged:
        log.critical("the audit log %s is damaged: run audit_verify", report.log)
    worst = next((one for one in report.findings if not one.accepted), None)
    details = report.as_dict()
    verified, root = verified_details(report, key_files.derived_key("record", report.log))
    record(
        Event.AUDIT_VERIFY,
        by=Actor("system", SELFCHECK_ACTOR, report.log),
        outcome=Outcome.FAILURE if report.damaged else Outcome.SUCCESS,
        subject=report.log,
        reason=str(worst.kind) if worst is not None else "",
        digest=root,
        details=details
        | {"findings": details["findings"][:_MOST_RECORDED], "found": len(report.findings)}
        | verified,
    )
