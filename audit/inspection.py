"""Verifying logs of the database, against the keys and anchors of this installation or others."""

import base64
import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError

from audit import anchors, keyfile, signing
from audit.anchors import BadAnchor
from audit.publishing import Damaged, check_keys
from audit.verification.chunks import Chunk, Keys, Task, examine
from audit.verification.database import DatabaseSource, names, snapshot
from audit.verification.findings import Finding, Kind, Report
from audit.verification.rows import Source
from audit.verification.statements import Published
from audit.verify import Examined, Trust, one_by_one, verify

log = logging.getLogger(__name__)
_AHEAD = 16  # chunks that may wait for the one before them


class BadQuestion(Exception):
    """There is nothing to verify as asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """`anchor` is a file; `pubkeys` are verifier keys: with one, no key of ours is used. Files
    of records that left may be kept `elsewhere`, and are not missed then."""

    log: str | None = None
    first: int = 0
    anchor: str | None = None
    pubkeys: tuple[str, ...] = ()
    elsewhere: bool = False


def inspect(question: Question, pool: Executor | None = None) -> Iterator[Report]:
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
    except OSError as error:  # each log that the database knows is told of by itself
        log.critical("the anchors cannot be read: %s", error)
        return {*names()}


def _of_one(name: str, question: Question, pool: Executor | None) -> Report:
    """A log that cannot be verified keeps no other from it."""
    try:
        return _verified(name, question, pool)
    except BadAnchor as error:
        finding = Finding(Kind.BAD_SIGNATURE, None, str(error))
    except Damaged as error:
        finding = Finding(Kind.WRONG_KEY, None, str(error))
    except (OSError, ValueError, DatabaseError) as error:
        log.exception("the log %s could not be verified", name)
        finding = Finding(Kind.NOT_VERIFIED, None, f"it could not be verified: {error}")
    return Report(name, 0, 0, 0, (finding,))


def _verified(name: str, question: Question, pool: Executor | None) -> Report:
    trust = _trust(name, question)  # before the database: an anchor comes after its checkpoint
    with snapshot():
        key = trust.keys.record if trust.keys else None
        source = DatabaseSource(name, key, elsewhere=question.elsewhere)
        if source.log() is None and not trust.published and name not in names():
            raise BadQuestion(f"There is no log of an organization {name}.")
        try:
            return verify(source, trust, question.first, _examined(pool))
        except LookupError as missing:
            raise BadQuestion(f"{missing}: verify the log from the beginning.") from None


def _trust(name: str, question: Question) -> Trust:
    published, whole = list(_anchors(name, question)), question.anchor is None
    if question.pubkeys:
        return _outsiders(question.pubkeys, published, whole)
    check_keys(name, anchors.newest(name))
    keys = Keys(keyfile.derived("record", name), keyfile.derived("place", name))
    return Trust(signing.origin(name), [*signing.trusted(name).values()], published, keys, whole)


def _outsiders(pubkeys: Iterable[str], published: list[Published], whole: bool) -> Trust:
    """Of somebody who has public keys and nothing else of ours."""
    read = [_read_key(text) for text in pubkeys]
    if len({origin for origin, _ in read}) > 1:
        raise BadQuestion("The keys of --pubkey are of different logs.")
    return Trust(read[0][0], [public for _, public in read], published, whole=whole)


def _anchors(name: str, question: Question) -> Iterable[Published]:
    if question.anchor is None:
        return [Published(anchor.note) for anchor in anchors.every(name)]
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


def _examined(pool: Executor | None) -> Examined:
    if pool is None:
        return one_by_one

    def spread(source: Source, tasks: Iterable[Task]) -> Iterator[Chunk]:
        waiting: deque[tuple[Task, Future[Chunk]]] = deque()
        for task in tasks:
            waiting.append((task, pool.submit(_examine_there, source, task)))
            if len(waiting) >= _AHEAD:
                yield _checked(source, *waiting.popleft())
        for task, there in waiting:
            yield _checked(source, task, there)

    return spread


def _checked(source: Source, task: Task, there: Future[Chunk]) -> Chunk:
    """Other processes do not see our snapshot: records may have left since, and rightly. So what
    one of them found counts when it is found here."""
    chunk = there.result()
    return chunk if chunk.clean else examine(source, task)


def _examine_there(source: Source, task: Task) -> Chunk:
    """In another process, which has a connection of its own."""
    return examine(source, task)
