"""Verify logs of the database against the keys and anchors of this installation or others."""

import base64
import json
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psycopg
from django.db import DatabaseError, connection

from audit.log import anchors, key_files, keyfile
from audit.log.anchors import BadAnchor
from audit.log.checkpoint_publication import Damaged, check_keys
from audit.models import AuditLog
from audit.verification import verified
from audit.verification.chunks import Chunk, Keys, Task, examine
from audit.verification.database_source import DatabaseSource, names
from audit.verification.log_source import LogSource
from audit.verification.log_verification import ALONE, NotFrom, Trust, Workers, verify
from audit.verification.statements import Published
from audit.verification.verification_report import (
    FindingKind,
    VerificationFinding,
    VerificationReport,
)

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


class BadQuestion(Exception):
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


def inspect(
    question: VerificationRequest, pool: Executor | None = None
) -> Iterator[VerificationReport]:
    """A report of each log, as it is made. Raises `BadQuestion`."""
    if question.first < 0:
        raise BadQuestion("--from is an index: 0 or more.")
    if question.log is None and (question.pubkeys or question.anchor):
        raise BadQuestion("A key or an anchor is one log's: say which with --log.")
    known = _all_names() if question.log is None else {question.log}
    for name in sorted(known):
        yield _of_one(name, question, pool)


def _all_names() -> set[str]:
    try:
        return {*names(), *anchors.logs()}
    except OSError as error:  # each log in the database is reported by itself
        log.critical("the anchors cannot be read: %s", error)
        return {*names()}


def _of_one(name: str, question: VerificationRequest, pool: Executor | None) -> VerificationReport:
    """A log that cannot be verified does not prevent the others from being verified."""
    try:
        return _verified(name, question, pool)
    except BadAnchor as error:
        finding = VerificationFinding(FindingKind.BAD_SIGNATURE, None, str(error))
    except Damaged as error:
        finding = VerificationFinding(FindingKind.WRONG_KEY, None, str(error))
    except _FAILURES as error:
        log.exception("the log %s could not be verified", name)
        finding = VerificationFinding(
            FindingKind.NOT_VERIFIED, None, f"it could not be verified: {error}"
        )
        if not connection.in_atomic_block:
            connection.close()  # the server may have ended it
    return VerificationReport(name, 0, 0, 0, (finding,))


def _verified(
    name: str, question: VerificationRequest, pool: Executor | None
) -> VerificationReport:
    trust = _trust(name, question)
    if question.resume and trust.keys is not None:
        trust = replace(trust, verified=verified.newest(name, trust.keys.record))
    key = trust.keys.record if trust.keys else None
    source = DatabaseSource(name, key, elsewhere=question.elsewhere)
    if question.log is not None and not _exists(name, question):
        raise BadQuestion(f"There is no log of an organization {name}.")
    try:
        return verify(source, trust, question.first, _workers(pool))
    except NotFrom as reason:
        if trust.verified is None:
            raise BadQuestion(f"{reason}: verify the log from the beginning.") from None
        log.warning("the log %s is verified from the beginning: %s", name, reason)
    return _verified(name, replace(question, resume=False), pool)


def _exists(name: str, question: VerificationRequest) -> bool:
    known = AuditLog.objects.filter(name=name).exists() or question.anchor is not None
    return known or anchors.newest(name) is not None or name in names()


def _trust(name: str, question: VerificationRequest) -> Trust:
    published, whole = _anchors(name, question), question.anchor is None
    if question.pubkeys:
        return _outsiders(question.pubkeys, published, whole)
    check_keys(name, anchors.newest(name))
    keys = Keys(keyfile.derived("record", name), keyfile.derived("place", name))
    return Trust(
        key_files.origin(name), [*key_files.trusted(name).values()], published, keys, whole
    )


def _outsiders(pubkeys: Iterable[str], published: Iterable[Published], whole: bool) -> Trust:
    """Of a verifier who has only public keys."""
    read = [_read_key(text) for text in pubkeys]
    if len({origin for origin, _ in read}) > 1:
        raise BadQuestion("The keys of --pubkey are of different logs.")
    return Trust(read[0][0], [public for _, public in read], published, whole=whole)


def _anchors(name: str, question: VerificationRequest) -> Iterable[Published]:
    if question.anchor is None:
        return (Published(anchor.note) for anchor in anchors.every(name))
    try:
        content = Path(question.anchor).read_text("utf-8")
        if content.startswith("{"):
            return [Published(str(json.loads(line)["note"])) for line in content.splitlines()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadQuestion(f"The anchors cannot be read: {error}.") from None
    return [Published(content)]


def _read_key(text: str) -> tuple[str, bytes]:
    try:
        name, _, encoded = text.split("+", 2)
        public = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise BadQuestion("--pubkey is name+id+base64, as audit_keys prints it.") from None
    if len(public) != 33 or public[0] != 1:
        raise BadQuestion("--pubkey is not an Ed25519 key.")
    return name, public[1:]


def _workers(pool: Executor | None) -> Workers:
    if pool is None:
        return ALONE

    def spread[Asked, Answered](
        function: Callable[[Asked], Answered], batches: Iterable[Asked]
    ) -> Iterator[Answered]:
        return _ahead(pool, function, batches)

    def examined(source: LogSource, tasks: Iterable[Task]) -> Iterator[Chunk]:
        return spread(partial(examine, source), tasks)

    return Workers(examined, spread)


def _ahead[Asked, Answered](
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
