"""People and service accounts, their second factors, and their browser sessions."""

from typing import Any

from django.apps import apps
from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.postgres.fields import ArrayField
from django.contrib.sessions.models import Session as BrowserSession
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tools.models.ids import new_id
from tools.models.organization import Organization


def default_groups() -> list[str]:
    """A new agent is granted `default` and nothing else (ruling 5)."""
    return ["default"]


class PeopleManager(UserManager["User"]):
    def create_superuser(self, username: str, *args: Any, **fields: Any) -> "User":
        """Where no organization is named, an administrator joins the first one."""
        if "organization" not in fields:
            fields["organization"] = Organization.objects.earliest("created_at")
        return super().create_superuser(username, *args, **fields)


class User(AbstractUser):
    """A person, or the service account that holds an agent's grants."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="users")
    is_service_account = models.BooleanField(default=False, editable=False)
    granted_groups = ArrayField(
        models.CharField(max_length=100),
        default=default_groups,
        blank=True,
        help_text='Tool groups that may be requested; "*" covers every group.',
    )
    granted_permissions = ArrayField(
        models.CharField(max_length=100),
        default=list,
        blank=True,
        help_text='Permissions that tools require, such as tool.filesystem.read; "*" is all.',
    )

    objects = PeopleManager()  # type: ignore[misc]

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                name="service_account_is_no_administrator",
                condition=Q(is_service_account=False) | Q(is_staff=False, is_superuser=False),
            )
        ]

    def clean(self) -> None:
        super().clean()
        used: Any = apps.get_model("tools", "UsedName").objects
        if used.filter(name__iexact=self.username).exclude(user=self.pk).exists():
            message = "This name is or was another's, and is not given again."
            raise ValidationError({"username": ValidationError(message, code="unique")})


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


class PersonSessionQuerySet(models.QuerySet["PersonSession"]):
    def lasting(self) -> "PersonSessionQuerySet":
        return self.filter(session__expire_date__gt=timezone.now())


class PersonSession(models.Model):
    """The user and origin of a browser session, which Django's own row does not have; deleted with
    that row. Its identifier grants nothing and may be shown on pages; the session's key may not."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.OneToOneField(BrowserSession, on_delete=models.CASCADE, related_name="person")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="browser_sessions")
    began_at = models.DateTimeField(default=timezone.now)
    source_ip = models.CharField(max_length=45, blank=True)
    user_agent = models.CharField(max_length=200, blank=True)

    objects: Any = PersonSessionQuerySet.as_manager()

    class Meta:
        ordering = ["-began_at"]

    def __str__(self) -> str:
        return f"{self.user_id} since {self.began_at:%Y-%m-%d %H:%M}"


class UsedName(models.Model):
    """A user name that is or was in use. A trigger of `tools_user` writes it and refuses it to any
    other account, so that no name ever refers to another person."""

    name = models.CharField(max_length=150, primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="used_names")

    def __str__(self) -> str:
        return self.name
