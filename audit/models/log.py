"""Models of the sealed log: one Merkle tree per organization (RFC 6962), its checkpoints and keys.

Leaves, nodes and checkpoints are only ever added. A log's own row has its current state.
"""

from django.db import models
from django.db.models import Q

from audit.fields import ClockTimestamp, TransactionIdField


class AuditLog(models.Model):
    """The state of a log: its size, and the complete subtrees at its right edge.

    Every record of a transaction before `horizon` is sealed. A log that was found behind what was
    published of it is halted: nothing is executed for its organization until a person has answered.
    """

    name = models.CharField(max_length=63, unique=True, help_text="The organization.")
    size = models.BigIntegerField(default=0)
    frontier = models.BinaryField(
        default=bytes, help_text="32 bytes for each complete subtree, the largest first."
    )
    horizon = TransactionIdField(null=True)
    anchored = models.BooleanField(
        db_default=False, help_text="Whether something that was published of it was seen since."
    )
    sealed_at = models.DateTimeField(null=True)
    halted_at = models.DateTimeField(null=True)
    halted_reason = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="log_size_not_negative", condition=Q(size__gte=0)),
            models.CheckConstraint(
                name="log_halted_says_why",
                condition=Q(halted_at__isnull=True, halted_reason="")
                | (Q(halted_at__isnull=False) & ~Q(halted_reason="")),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AuditLeaf(models.Model):
    """The position of a record in its log. `mac` binds position and hash under a key of the
    sealer's."""

    pk = models.CompositePrimaryKey("log", "index")
    log = models.ForeignKey(AuditLog, on_delete=models.PROTECT, related_name="leaves")
    index = models.BigIntegerField()
    record_id = models.UUIDField(unique=True)
    hash = models.BinaryField(max_length=32)
    mac = models.BinaryField(max_length=32)

    class Meta:
        constraints = [
            models.CheckConstraint(name="leaf_index_not_negative", condition=Q(index__gte=0))
        ]

    def __str__(self) -> str:
        return f"leaf {self.index}"


class AuditNode(models.Model):
    """The hash of a complete subtree of 256, 65,536 … leaves, so that a proof reads few rows."""

    pk = models.CompositePrimaryKey("log", "level", "index")
    log = models.ForeignKey(AuditLog, on_delete=models.PROTECT, related_name="nodes")
    level = models.PositiveSmallIntegerField(help_text="8, 16, 24 …: 2 to the power of it leaves.")
    index = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    def __str__(self) -> str:
        return f"node {self.level}/{self.index}"


class Checkpoint(models.Model):
    """A signed statement of a log's size and root, as it was published (C2SP tlog-checkpoint)."""

    log = models.ForeignKey(AuditLog, on_delete=models.PROTECT, related_name="checkpoints")
    size = models.BigIntegerField()
    root = models.BinaryField(max_length=32)
    note = models.TextField()
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        indexes = [models.Index(fields=["log", "-size", "-id"], name="checkpoint_newest")]

    def __str__(self) -> str:
        return f"{self.log_id} at {self.size}"


class CheckpointKey(models.Model):
    """A public key that checkpoints were signed with. The private half never comes here."""

    key_id = models.CharField(max_length=8, primary_key=True, help_text="As in a signed note.")
    name = models.CharField(max_length=100)
    public = models.BinaryField(max_length=32)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    retired_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.key_id


class AuditSegment(models.Model):
    """A part of a log whose records were written to a file, and may leave the database.

    Its leaves stay, so that the log still verifies over what has left.
    """

    log = models.ForeignKey(AuditLog, on_delete=models.PROTECT, related_name="segments")
    first = models.BigIntegerField()
    end = models.BigIntegerField(help_text="One past the last index.")
    file = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    note = models.TextField(help_text="The checkpoint the file was written under.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="segment_holds_something", condition=Q(first__gte=0, end__gt=models.F("first"))
            ),
            models.UniqueConstraint(fields=["log", "first"], name="segment_begins_once"),
        ]

    def __str__(self) -> str:
        return f"{self.log_id} {self.first} to {self.end}"
