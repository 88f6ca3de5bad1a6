"""Idempotency keys: the response to a request that may be repeated."""

import hashlib
import json
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, models
from django.db.models import Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tools.models.organization import Organization
from tools.models.user import User

# For the first request, for one that comes when the key is forgotten, and when the first one ended
# without an answer. The statement waits for the row's lock, and recognizes its own row by the
# attempt.
_CLAIM = """
    INSERT INTO tools_idempotencykey AS kept (
        id, organization_id, user_id, narrowing, address, key, fingerprint, attempt, authority,
        answer, headers
    ) VALUES (
        %(id)s, %(organization)s, %(user)s, %(narrowing)s, %(address)s, %(key)s, %(fingerprint)s,
        %(attempt)s, %(authority)s, '', '{}'
    )
    ON CONFLICT (organization_id, user_id, narrowing, address, key) DO UPDATE
    SET fingerprint = excluded.fingerprint, attempt = excluded.attempt,
        authority = excluded.authority, status = NULL, answer = '', headers = '{}',
        secrets = NULL, had_secrets = false, began_at = clock_timestamp()
    WHERE kept.began_at < clock_timestamp() - %(kept)s
       OR (kept.status IS NULL AND kept.began_at < clock_timestamp() - %(abandoned)s)
    RETURNING id
"""
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class KeyedBy:
    """Whose key, of which address. `narrowing` distinguishes tokens of one account with different
    scopes."""

    organization: UUID
    user: UUID
    narrowing: str
    address: str
    key: str

    @staticmethod
    def digest(*parts: Any) -> str:
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt of one request to become the one that acts."""

    row: UUID
    id: UUID


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    def of(self, keyed_by: KeyedBy) -> "IdempotencyKeyQuerySet":
        names = ("organization", "user", "narrowing", "address", "key")
        return self.filter(**dict(zip(names, astuple(keyed_by), strict=True)))

    def claim(
        self, keyed_by: KeyedBy, *, fingerprint: str, authority: dict[str, Any],
        kept: timedelta, abandoned: timedelta,
    ) -> "Attempt | None":  # fmt: skip
        """The attempt of the request that is to act; None for all others."""
        attempt = uuid7()
        names = ("organization", "user", "narrowing", "address", "key")
        values = dict(zip(names, astuple(keyed_by), strict=True)) | {
            "id": uuid7(),
            "fingerprint": fingerprint,
            "attempt": attempt,
            "authority": json.dumps(authority),
            "kept": kept,
            "abandoned": abandoned,
        }
        with connection.cursor() as cursor:
            cursor.execute(_CLAIM, values)
            claimed = cursor.fetchone()
        return Attempt(claimed[0], attempt) if claimed else None

    def under(self, attempt: "Attempt") -> "IdempotencyKeyQuerySet":
        """The row, unless another attempt has taken it over."""
        return self.filter(pk=attempt.row, attempt=attempt.id)

    def erase_secrets(self, age: timedelta) -> int:
        """Erases secrets of responses from so long ago; returns how many."""
        return self.filter(secrets__isnull=False, began_at__lt=Now() - age).update(secrets=None)

    def forget(self, age: timedelta) -> int:
        """Delete what began so long ago, batch by batch; how many."""
        old = self.filter(began_at__lt=Now() - age).order_by("began_at")
        count = 0
        while found := list(old.values_list("pk", flat=True)[:_BATCH]):
            count += self.filter(pk__in=found, began_at__lt=Now() - age).delete()[0]
        return count


class IdempotencyKey(models.Model):
    """The response to a mutating request, for a client that repeats it.

    No part of the request is kept but digests. Without `status` the request is still running.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    narrowing = models.CharField(max_length=64)
    address = models.CharField(max_length=64, help_text="Digest of method and path.")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    attempt = models.UUIDField()
    authority = models.JSONField(default=dict, help_text="What its caller held and relied on.")
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    answer = models.TextField(blank=True)
    headers = models.JSONField(default=dict)
    secrets = models.BinaryField(null=True, blank=True)
    had_secrets = models.BooleanField(db_default=False, default=False)
    began_at = models.DateTimeField(db_default=Now())

    objects = IdempotencyKeyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "user", "narrowing", "address", "key"],
                name="idempotency_key_once",
            ),
            models.CheckConstraint(
                condition=Q(status__isnull=False) | Q(answer="", secrets__isnull=True),
                name="idempotency_answer_has_status",
            ),
        ]
        indexes = [models.Index(fields=["began_at"], name="idempotency_by_age")]

    def __str__(self) -> str:
        return f"{self.key} {self.status or 'in progress'}"
