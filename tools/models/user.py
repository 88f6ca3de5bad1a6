from typing import Any

from django.apps import apps
from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

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
