from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tools.models.ids import new_id
from tools.models.user import User


class AuthenticatorApp(models.Model):
    """The encrypted secret of a person's authenticator app. One per person.

    `last_step` is the newest half minute whose code was used: codes of it or earlier are refused.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="authenticator_app")
    sealed = models.BinaryField()
    last_step = models.BigIntegerField(default=0)
    made_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"app of {self.user_id}"


class SecurityKey(models.Model):
    """A public key that a person's security key or passkey signs with, at one host of ours."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="security_keys")
    name = models.CharField(max_length=60)
    host = models.CharField(max_length=253)
    credential_id = models.BinaryField(unique=True)
    credential = models.BinaryField()
    sign_count = models.BigIntegerField(default=0)
    made_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["made_at"]

    def __str__(self) -> str:
        return self.name


class RecoveryCodeQuerySet(models.QuerySet["RecoveryCode"]):
    def unused(self) -> "RecoveryCodeQuerySet":
        return self.filter(used_at=None)

    def spend(self, user: User, digest: str) -> bool:
        """True for the one request that used the code up."""
        found = self.unused().filter(user=user, digest=digest)
        return found.update(used_at=timezone.now()) == 1


class RecoveryCode(models.Model):
    """A single-use code, stored as a digest."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True)

    objects: Any = RecoveryCodeQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "digest"], name="recovery_code_once"),
            models.CheckConstraint(
                name="recovery_code_is_a_digest", condition=Q(digest__regex=r"^[0-9a-f]{64}$")
            ),
        ]

    def __str__(self) -> str:
        return f"code of {self.user_id}"


class SingleSignOn(models.Model):
    """A person's identity at an identity provider: by its issuer and subject, never by an address.

    `made_account`: the account was created for this identity; without a role from the provider's
    groups, login is refused.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="single_sign_ons")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    made_account = models.BooleanField(default=False)
    made_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="single_sign_on_is_one")
        ]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"
