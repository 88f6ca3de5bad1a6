"""Outputs too large for the rows of their executions."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from tools.models.execution import Execution
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.pipeline_sql import KEEP_OUTPUT

_PIECE = """
    SELECT substring(content FROM %s FOR %s) FROM tools_storedoutput
    WHERE organization_id = %s AND digest = %s
"""
YOUNG = timedelta(hours=1)  # longer than any transaction that keeps one


class StoredOutputQuerySet(models.QuerySet["StoredOutput"]):
    def keep(self, organization: UUID, digest: str, content: bytes) -> None:
        """Stored once, also when several executions have it; call it in the transaction that refers
        to it."""
        values: dict[str, Any] = {
            "id": new_id(),
            "organization": organization,
            "digest": digest,
            "size": len(content),
            "content": content,
        }
        with connection.cursor() as cursor:
            cursor.execute(KEEP_OUTPUT.text, values)

    def touch(self, organization: UUID, digest: str) -> bool:
        """Lock one until the end of the transaction. False when it was deleted."""
        rows = self.filter(organization=organization, digest=digest)
        return rows.update(kept_at=Now()) == 1

    def piece(self, organization: UUID, digest: str, start: int, length: int) -> bytes | None:
        """Reads so many bytes from `start`; None when it was deleted."""
        with connection.cursor() as cursor:
            cursor.execute(_PIECE, [start + 1, length, organization, digest])
            row = cursor.fetchone()
        return None if row is None else bytes(row[0])

    def unnamed(self) -> "StoredOutputQuerySet":
        """Outputs that no execution refers to any more."""
        naming = Execution.objects.filter(
            organization=OuterRef("organization"), output_digest=OuterRef("digest")
        ).exclude(output_digest="")
        return self.filter(~Exists(naming), kept_at__lt=Now() - YOUNG)


class StoredOutput(models.Model):
    """The bytes of an output, by their digest. Two organizations never share one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=71)
    size = models.BigIntegerField()
    content = models.BinaryField()
    kept_at = models.DateTimeField(db_default=Now(), help_text="When an execution last gave it.")

    objects = StoredOutputQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "digest", name="stored_output_once"),
            models.CheckConstraint(
                name="stored_output_digest_is_sha256",
                condition=Q(digest__regex=r"^sha256:[0-9a-f]{64}$"),
            ),
        ]

    def __str__(self) -> str:
        return self.digest
