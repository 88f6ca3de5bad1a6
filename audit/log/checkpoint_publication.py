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
from audit.log.checkpoints import Acceptance, BadNote, Signer, Statement
from audit.log.proofs import subtrees
from audit.log.seal_batches import SEALER, frontier_of
from audit.models import AuditLog, Checkpoint, CheckpointKey

log = logging.getLogger(__name__)
WRONG_KEYS = "wrong_keys"
_MOST_OWED = 10
_DUE = """
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


class Damaged(Exception):
    """A log is not what was published of it, or cannot go on; the message says how."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def due(active_s: float) -> list[str]:
    """Logs that grew and were last signed `active_s` ago, and those that have been quiet."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE, [active_s, settings.AUDIT_QUIET_SECONDS])
        return [name for (name,) in cursor.fetchall()]


def publish(name: str) -> str | None:
    """Sign the log as it is and store the note outside the database. None once it is halted."""
    with transaction.atomic():
        found = _locked(name)
        if found.halted_at is not None:
            return None
        try:
            published = _compared(found)
        except (Damaged, BadAnchor) as damage:
            _halt(found, damage)
            return None
        owed = _unpublished(found, published)
        note = _sign(found, published)
    for one in (*owed, note):
        anchors.append(name, one)
    return note


def watch(compared_lately: Container[str] = ()) -> None:
    """Compare every log with what was published of it, also of logs the database knows not, but
    for those that were `compared_lately`, before they were signed."""
    known = set(AuditLog.objects.values_list("name", flat=True))
    missing = [AuditLog(name=name) for name in anchors.logs() if name not in known]
    AuditLog.objects.bulk_create(missing, ignore_conflicts=True)
    for name in AuditLog.objects.filter(halted_at__isnull=True).values_list("name", flat=True):
        if name not in compared_lately:
            _watch_one(name)
    metrics.logs_halted.set(AuditLog.objects.filter(halted_at__isnull=False).count())


def compare(found: AuditLog, anchor: Anchor | None) -> None:
    """Raises `Damaged` where the log does not go on from what the anchor says, or where the right
    edge of its tree is not what its row says; `BadAnchor` where it has no signature of ours."""
    check_keys(found.name, anchor)
    root = _root(found)
    if found.size and _from_rows(found) != root:
        raise Damaged("mutated", "The rows of its tree are not what the log's own row says.")
    if anchor is None:
        _check_never_anchored(found)
        return
    said = _vouched(found.name, anchor)
    if said.size > found.size:
        raise Damaged(
            "rolled_back",
            f"It holds {found.size} records where {said.size} were published at "
            f"{said.at:%Y-%m-%d %H:%M:%S} UTC: the database was put back, or records removed.",
        )
    if said.size and not _goes_on(found, said, root):
        raise Damaged(
            "forked",
            f"Its first {said.size} records are not those published at "
            f"{said.at:%Y-%m-%d %H:%M:%S} UTC.",
        )


def check_keys(name: str, anchor: Anchor | None) -> None:
    """Raises `Damaged` where nothing that was signed last, here and outside, was signed for this
    installation: a database without its keys must not make others and go on."""
    noted = Checkpoint.objects.filter(log__name=name).order_by("-size", "-id")
    note = noted.values_list("note", flat=True).first()
    if note is None:
        return
    last = {text.partition("\n")[0] for text in (note, anchor.note if anchor else note)}
    if key_files.origin(name) not in last:
        raise Damaged(
            WRONG_KEYS,
            "The files in keys/ are not those of this database. Stop Toolcrib, put them back, then "
            f"run audit_accept. They signed as {max(last)[:120]}.",
        )


def accept(*, name: str, by: Actor, reason: str) -> str:
    """Accept the break of a halted log, which goes on from its present state; the note that says
    so. The break stays on record, and in the anchors.

    Raises LookupError where there is none or it is not halted, `Damaged` where its tree has holes.
    """
    with transaction.atomic():
        if not AuditLog.objects.filter(name=name).exists():
            raise LookupError(f"There is no log of an organization {name}.")
        found = _locked(name)
        if found.halted_at is None:
            raise LookupError(f"The log {name} is not halted.")
        acceptance = Acceptance(by=by.name, reason=reason, problem=found.halted_reason)
        _mend(found)
        record(
            Event.AUDIT_ACCEPT,
            by=by,
            outcome=Outcome.CHANGED,
            subject=name,
            reason="break_accepted",
            details={"why": reason, "problem": found.halted_reason, "size": found.size},
        )
        note = _sign(found, _published(name), acceptance)
    anchors.append(name, note)
    log.warning("the break of the log %s was accepted", name, extra={"by": by.name, "why": reason})
    return note


def finish_rotation() -> bool:
    """Whether every log carries the new key now, so that the old one is gone."""
    for name in AuditLog.objects.values_list("name", flat=True):
        if len(key_files.signers_after(name, _published(name))) > 1:
            return False
    names = AuditLog.objects.values_list("name", flat=True)
    current = [signer.key_id for name in names for signer in key_files.signers_after(name, "")[:1]]
    outdated = CheckpointKey.objects.filter(retired_at__isnull=True).exclude(pk__in=current)
    outdated.update(retired_at=Now())
    key_files.finish_rotation()
    return True


def rotate_key(*, by: Callable[[str], Actor]) -> None:
    """A new key signs from now on; each log's record says so. Raises `RotationUnderWay`."""
    names = list(AuditLog.objects.values_list("name", flat=True))
    before = {name: key_files.signers_after(name, "")[0].key_id for name in names}
    key_files.rotate()
    with transaction.atomic():
        for name in names:
            record(
                Event.AUDIT_KEY_ROTATE,
                by=by(name),
                outcome=Outcome.CHANGED,
                subject=name,
                details={
                    "before": before[name],
                    "after": key_files.signers_after(name, "")[0].key_id,
                },
            )


def public_keys() -> list[str]:
    """One a line for each log and key, as a reader of its notes is given it: the one that signs,
    then those that did before."""
    return [
        checkpoints.verifier_key(key_files.origin(name), public)
        for name in AuditLog.objects.order_by("name").values_list("name", flat=True)
        for public in key_files.trusted(name).values()
    ]


def manifest_keys() -> list[str]:
    """The same of those that sign manifests of exports and archives."""
    return [
        checkpoints.verifier_key(key_files.manifest_name(name), public)
        for name in AuditLog.objects.order_by("name").values_list("name", flat=True)
        for public in key_files.manifest_keys(name).values()
    ]


def _watch_one(name: str) -> None:
    with transaction.atomic():
        found = _locked(name)
        try:
            _compared(found)
        except (Damaged, BadAnchor) as damage:
            _halt(found, damage)


def _compared(found: AuditLog) -> str:
    """What was published of it last; nothing where nothing was. Raises as `compare` does."""
    anchor = anchors.newest(found.name)
    compare(found, anchor)
    if anchor is None:
        return ""
    if not found.anchored:
        AuditLog.objects.filter(pk=found.pk).update(anchored=True)
    return anchor.note


def _check_never_anchored(found: AuditLog) -> None:
    if found.anchored:
        raise Damaged(
            "anchors_gone",
            "Nothing that was published of it is left in the directory of the anchors. Put the "
            "newest file back, or run audit_accept.",
        )


def _vouched(name: str, anchor: Anchor) -> Statement:
    """Its content, with a valid signature by a key of ours."""
    said = anchor.statement
    try:
        signed = checkpoints.signed_by(anchor.note, key_files.trusted(name))
    except BadNote as error:
        raise BadAnchor(f"the newest anchor of {name} is not ours: {error}") from None
    if not signed or said.origin != key_files.origin(name):
        raise BadAnchor(f"the newest anchor of {name} is signed by no key in keys/")
    return said


def _published(name: str) -> str:
    """The newest anchor's note; nothing where there is none that can be read."""
    try:
        anchor = anchors.newest(name)
    except BadAnchor:
        return ""
    return anchor.note if anchor else ""


def _unpublished(found: AuditLog, published: str) -> list[str]:
    """Our newest checkpoints that are not anchored: their sealer was killed before, or another
    sealer is about to. Every checkpoint has its anchor, so one that is gone is missed."""
    newest = Checkpoint.objects.filter(log=found).order_by("-size", "-id")
    notes = [*newest.values_list("note", flat=True)[:_MOST_OWED]]
    owed = [*takewhile(lambda note: note != published, notes)]
    return [note for note in reversed(owed) if _ours(found.name, note)]


def _ours(name: str, note: str) -> bool:
    try:
        return bool(checkpoints.signed_by(note, key_files.trusted(name)))
    except BadNote:
        return False


def _locked(name: str) -> AuditLog:
    return AuditLog.objects.select_for_update().get(name=name)


def _root(found: AuditLog) -> bytes:
    try:
        return merkle.root_of(frontier_of(bytes(found.frontier), found.size))
    except ValueError as error:
        raise Damaged("mutated", str(error)) from None


def _from_rows(found: AuditLog) -> bytes:
    try:
        return subtrees(found)(0, found.size)
    except LookupError as missing:
        raise Damaged("truncated", f"Its tree has a hole: {missing}.") from None


def _goes_on(found: AuditLog, said: Statement, root: bytes) -> bool:
    if said.size == found.size:
        return said.root == root
    try:
        proof = merkle.consistency_proof(said.size, found.size, subtrees(found))
    except LookupError as missing:
        raise Damaged("truncated", f"Its tree has a hole: {missing}.") from None
    return merkle.consistent(said.size, found.size, said.root, root, proof)


def _sign(found: AuditLog, published: str, accepted: Acceptance | None = None) -> str:
    """Not the last note of the database, but the last published one, shows whether verifiers have
    the new key."""
    signers = key_files.signers_after(found.name, published)
    root = _root(found)
    statement = Statement(key_files.origin(found.name), found.size, root, _clock(), accepted)
    note = checkpoints.sign(statement, *signers)
    _make_known(signers)
    Checkpoint.objects.create(log=found, size=found.size, root=root, note=note)
    metrics.checkpoints_signed.inc()
    return note


def _clock() -> datetime:
    """The database's. From here on the transaction is on its disk before it counts as committed: an
    anchor must not say more than the database does after a loss of power."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        return moment


def _make_known(signers: tuple[Signer, ...]) -> None:
    rows = [CheckpointKey(key_id=one.key_id, name=one.name, public=one.public) for one in signers]
    CheckpointKey.objects.bulk_create(rows, ignore_conflicts=True)


def _halt(found: AuditLog, damage: Damaged | BadAnchor) -> None:
    kind = damage.kind if isinstance(damage, Damaged) else "bad_anchor"
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


def _mend(found: AuditLog) -> None:
    """What is there is the rows of the tree; the log's row is made to fit them."""
    part, first, frontier = subtrees(found), 0, b""
    try:
        for level in reversed(range(found.size.bit_length())):
            if found.size >> level & 1:
                frontier += part(first, first + (1 << level))
                first += 1 << level
    except LookupError as missing:
        raise Damaged(
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
