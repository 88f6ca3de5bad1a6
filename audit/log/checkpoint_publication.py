"""Checkpoints: signed statements of a log's size and root, compared with those published before.

The newest anchor outside the database is asked before every signature. A log that differs from what
was published of it is halted: it is no longer signed, and nothing is executed for its organization.
"""

import logging
from collections.abc import Callable, Container
from datetime import datetime
from itertools import takewhile

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from audit import metrics
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import anchors, checkpoints, key_files, merkle
from audit.log.anchors import Anchor, BadAnchor
from audit.log.checkpoints import Acceptance, BadNote, CheckpointStatement, Signer
from audit.log.proofs import subtree_reader
from audit.log.seal_batches import SEALER, split_frontier
from audit.models import AuditLog, Checkpoint, CheckpointKey

log = logging.getLogger(__name__)
WRONG_KEYS = "wrong_keys"
_MOST_UNPUBLISHED = 10
_DUE_SQL = """
SELECT l.name FROM audit_auditlog l
LEFT JOIN LATERAL (
    SELECT c.size, c.created_at FROM audit_checkpoint c
    WHERE c.log_id = l.id ORDER BY c.size DESC, c.id DESC LIMIT 1
) newest ON true
WHERE l.halted_at IS NULL AND (
    newest.size IS NULL
    OR (l.size > newest.size AND newest.created_at <= clock_timestamp() - make_interval(secs => %s))
    OR newest.created_at <= clock_timestamp() - make_interval(secs => %s)
)
"""


class LogDamaged(Exception):
    """A log is not what was published of it, or cannot go on; the message says how."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def due_logs(active_s: float) -> list[str]:
    """Logs that grew and were last signed `active_s` ago, and those that have been quiet."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE_SQL, [active_s, settings.AUDIT_QUIET_SECONDS])
        return [name for (name,) in cursor.fetchall()]


def publish_checkpoint(name: str) -> str | None:
    """Sign the log as it is and store the note outside the database. None once it is halted."""
    with transaction.atomic():
        found = _lock_log(name)
        if found.halted_at is not None:
            return None
        try:
            published = _compare_with_newest(found)
        except (LogDamaged, BadAnchor) as damage:
            _halt_log(found, damage)
            return None
        owed = _unpublished_notes(found, published)
        note = _sign_checkpoint(found, published)
    for one in (*owed, note):
        anchors.append_anchor(name, one)
    return note


def compare_logs(recently_compared: Container[str] = ()) -> None:
    """Compare every log with what was published of it, also of logs the database knows not, but
    for those that were `recently_compared`, before they were signed."""
    known = set(AuditLog.objects.values_list("name", flat=True))
    missing = [AuditLog(name=name) for name in anchors.anchored_logs() if name not in known]
    AuditLog.objects.bulk_create(missing, ignore_conflicts=True)
    for name in AuditLog.objects.filter(halted_at__isnull=True).values_list("name", flat=True):
        if name not in recently_compared:
            _compare_or_halt(name)
    metrics.logs_halted.set(AuditLog.objects.filter(halted_at__isnull=False).count())


def compare_log(found: AuditLog, anchor: Anchor | None) -> None:
    """Raises `LogDamaged` where the log does not go on from what the anchor says, or the right
    edge of its tree is not what its row says; `BadAnchor` where it has no signature of ours."""
    check_keys(found.name, anchor)
    root = _stored_root(found)
    if found.size and _root_from_rows(found) != root:
        raise LogDamaged("mutated", "The rows of its tree are not what the log's own row says.")
    if anchor is None:
        _check_never_anchored(found)
        return
    statement = _verified_statement(found.name, anchor)
    if statement.size > found.size:
        raise LogDamaged(
            "rolled_back",
            f"It holds {found.size} records where {statement.size} were published at "
            f"{statement.at:%Y-%m-%d %H:%M:%S} UTC: the database was put back, or records removed.",
        )
    if statement.size and not _extends(found, statement, root):
        raise LogDamaged(
            "forked",
            f"Its first {statement.size} records are not those published at "
            f"{statement.at:%Y-%m-%d %H:%M:%S} UTC.",
        )


def check_keys(name: str, anchor: Anchor | None) -> None:
    """Raises `LogDamaged` where nothing that was signed last, here and outside, was signed for this
    installation: a database without its keys must not make others and go on."""
    noted = Checkpoint.objects.filter(log__name=name).order_by("-size", "-id")
    note = noted.values_list("note", flat=True).first()
    if note is None:
        return
    last = {text.partition("\n")[0] for text in (note, anchor.note if anchor else note)}
    if key_files.log_origin(name) not in last:
        raise LogDamaged(
            WRONG_KEYS,
            "The files in keys/ are not those of this database. Stop Toolcrib, put them back, then "
            f"run audit_accept. They signed as {max(last)[:120]}.",
        )


def accept_break(*, name: str, by: Actor, reason: str) -> str:
    """Accept the break of a halted log, which goes on from its present state; the note that says
    so. The break stays on record, and in the anchors.

    Raises LookupError for a log that is missing or not halted, `LogDamaged` for a tree with holes.
    """
    with transaction.atomic():
        if not AuditLog.objects.filter(name=name).exists():
            raise LookupError(f"There is no log of an organization {name}.")
        found = _lock_log(name)
        if found.halted_at is None:
            raise LookupError(f"The log {name} is not halted.")
        acceptance = Acceptance(by=by.name, reason=reason, problem=found.halted_reason)
        _repair_frontier(found)
        record(
            Event.AUDIT_ACCEPT,
            by=by,
            outcome=Outcome.CHANGED,
            subject=name,
            reason="break_accepted",
            details={"why": reason, "problem": found.halted_reason, "size": found.size},
        )
        note = _sign_checkpoint(found, _published_note(name), acceptance)
    anchors.append_anchor(name, note)
    log.warning("the break of the log %s was accepted", name, extra={"by": by.name, "why": reason})
    return note


def finish_rotation() -> bool:
    """Whether every log carries the new key now, so that the old one is gone."""
    for name in AuditLog.objects.values_list("name", flat=True):
        if len(key_files.next_signers(name, _published_note(name))) > 1:
            return False
    names = AuditLog.objects.values_list("name", flat=True)
    current = [signer.key_id for name in names for signer in key_files.next_signers(name, "")[:1]]
    outdated = CheckpointKey.objects.filter(retired_at__isnull=True).exclude(pk__in=current)
    outdated.update(retired_at=Now())
    key_files.finish_rotation()
    return True


def rotate_key(*, by: Callable[[str], Actor]) -> None:
    """A new key signs from now on; each log's record says so. Raises `RotationUnderWay`."""
    names = list(AuditLog.objects.values_list("name", flat=True))
    before = {name: key_files.next_signers(name, "")[0].key_id for name in names}
    key_files.rotate_keys()
    with transaction.atomic():
        for name in names:
            record(
                Event.AUDIT_KEY_ROTATE,
                by=by(name),
                outcome=Outcome.CHANGED,
                subject=name,
                details={
                    "before": before[name],
                    "after": key_files.next_signers(name, "")[0].key_id,
                },
            )


def public_keys() -> list[str]:
    """One a line for each log and key, as a reader of its notes is given it: the one that signs,
    then those that did before."""
    return [
        checkpoints.verifier_key(key_files.log_origin(name), public)
        for name in AuditLog.objects.order_by("name").values_list("name", flat=True)
        for public in key_files.trusted_keys(name).values()
    ]


def manifest_keys() -> list[str]:
    """The same of those that sign manifests of exports and archives."""
    return [
        checkpoints.verifier_key(key_files.manifest_name(name), public)
        for name in AuditLog.objects.order_by("name").values_list("name", flat=True)
        for public in key_files.manifest_keys(name).values()
    ]


def _compare_or_halt(name: str) -> None:
    with transaction.atomic():
        found = _lock_log(name)
        try:
            _compare_with_newest(found)
        except (LogDamaged, BadAnchor) as damage:
            _halt_log(found, damage)


def _compare_with_newest(found: AuditLog) -> str:
    """What was published of it last; nothing where nothing was. Raises as `compare` does."""
    anchor = anchors.newest_anchor(found.name)
    compare_log(found, anchor)
    if anchor is None:
        return ""
    if not found.anchored:
        AuditLog.objects.filter(pk=found.pk).update(anchored=True)
    return anchor.note


def _check_never_anchored(found: AuditLog) -> None:
    if found.anchored:
        raise LogDamaged(
            "anchors_gone",
            "Nothing that was published of it is left in the directory of the anchors. Put the "
            "newest file back, or run audit_accept.",
        )


def _verified_statement(name: str, anchor: Anchor) -> CheckpointStatement:
    """Its content, with a valid signature by a key of ours."""
    statement = anchor.statement
    try:
        signed = checkpoints.signed_by(anchor.note, key_files.trusted_keys(name))
    except BadNote as error:
        raise BadAnchor(f"the newest anchor of {name} is not ours: {error}") from None
    if not signed or statement.origin != key_files.log_origin(name):
        raise BadAnchor(f"the newest anchor of {name} is signed by no key in keys/")
    return statement


def _published_note(name: str) -> str:
    """The newest anchor's note; nothing where there is none that can be read."""
    try:
        anchor = anchors.newest_anchor(name)
    except BadAnchor:
        return ""
    return anchor.note if anchor else ""


def _unpublished_notes(found: AuditLog, published: str) -> list[str]:
    """Our newest checkpoints that are not anchored: their sealer was killed before, or another
    sealer is about to. Every checkpoint has its anchor, so one that is gone is missed."""
    newest = Checkpoint.objects.filter(log=found).order_by("-size", "-id")
    notes = [*newest.values_list("note", flat=True)[:_MOST_UNPUBLISHED]]
    owed = [*takewhile(lambda note: note != published, notes)]
    return [note for note in reversed(owed) if _is_ours(found.name, note)]


def _is_ours(name: str, note: str) -> bool:
    try:
        return bool(checkpoints.signed_by(note, key_files.trusted_keys(name)))
    except BadNote:
        return False


def _lock_log(name: str) -> AuditLog:
    return AuditLog.objects.select_for_update().get(name=name)


def _stored_root(found: AuditLog) -> bytes:
    try:
        return merkle.frontier_root(split_frontier(bytes(found.frontier), found.size))
    except ValueError as error:
        raise LogDamaged("mutated", str(error)) from None


def _root_from_rows(found: AuditLog) -> bytes:
    try:
        return subtree_reader(found)(0, found.size)
    except LookupError as missing:
        raise LogDamaged("truncated", f"Its tree has a hole: {missing}.") from None


def _extends(found: AuditLog, statement: CheckpointStatement, root: bytes) -> bool:
    if statement.size == found.size:
        return statement.root == root
    try:
        proof = merkle.consistency_proof(statement.size, found.size, subtree_reader(found))
    except LookupError as missing:
        raise LogDamaged("truncated", f"Its tree has a hole: {missing}.") from None
    return merkle.is_consistent(statement.size, found.size, statement.root, root, proof)


def _sign_checkpoint(found: AuditLog, published: str, accepted: Acceptance | None = None) -> str:
    """Not the last note of the database, but the last published one, shows whether verifiers have
    the new key."""
    signers = key_files.next_signers(found.name, published)
    root = _stored_root(found)
    statement = CheckpointStatement(
        key_files.log_origin(found.name), found.size, root, _database_time(), accepted
    )
    note = checkpoints.sign_statement(statement, *signers)
    _store_keys(signers)
    Checkpoint.objects.create(log=found, size=found.size, root=root, note=note)
    metrics.checkpoints_signed.inc()
    return note


def _database_time() -> datetime:
    """The database's. From here on the transaction is on its disk before it counts as committed: an
    anchor must not say more than the database does after a loss of power."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        return moment


def _store_keys(signers: tuple[Signer, ...]) -> None:
    rows = [CheckpointKey(key_id=one.key_id, name=one.name, public=one.public) for one in signers]
    CheckpointKey.objects.bulk_create(rows, ignore_conflicts=True)


def _halt_log(found: AuditLog, damage: LogDamaged | BadAnchor) -> None:
    kind = damage.kind if isinstance(damage, LogDamaged) else "bad_anchor"
    AuditLog.objects.filter(pk=found.pk).update(halted_at=Now(), halted_reason=str(damage)[:300])
    log.critical("the log %s is halted: %s", found.name, damage)
    if kind == WRONG_KEYS:
        return  # a record would be reported as a forgery once the right keys are back
    record(
        Event.AUDIT_HALTED,
        by=Actor("system", SEALER, found.name),
        outcome=Outcome.FAILURE,
        subject=found.name,
        reason=kind,
        details={"problem": str(damage), "size": found.size},
    )


def _repair_frontier(found: AuditLog) -> None:
    """What is there is the rows of the tree; the log's row is made to fit them."""
    part, first, frontier = subtree_reader(found), 0, b""
    try:
        for level in reversed(range(found.size.bit_length())):
            if found.size >> level & 1:
                frontier += part(first, first + (1 << level))
                first += 1 << level
    except LookupError as missing:
        raise LogDamaged(
            "truncated",
            f"The log {found.name} cannot go on over a hole: {missing}. Put the rows of its tree "
            "back from a backup first.",
        ) from None
    AuditLog.objects.filter(pk=found.pk).update(
        frontier=frontier,
        horizon=None,  # of another server perhaps: everything without a place is looked for
        halted_at=None,
        halted_reason="",
    )
    found.refresh_from_db()
