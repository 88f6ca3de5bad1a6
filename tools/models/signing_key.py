from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.tool import ToolVersion


class SigningKeyQuerySet(models.QuerySet["SigningKey"]):
    def current(self) -> "SigningKeyQuerySet":
        return self.filter(retired_at__isnull=True)

    def trusted(self) -> "SigningKeyQuerySet":
        return self.filter(distrusted_at__isnull=True)


class SigningKey(models.Model):
    """What an organization's versions are signed with. The key file vouches for each row."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="signing_keys"
    )
    key_id = models.CharField(max_length=16)
    public_key = models.CharField(max_length=44, help_text="Ed25519, base64.")
    sealed = models.BinaryField(help_text="The private key; see tools/catalog/sealing.py.")
    voucher = models.CharField(
        max_length=88, help_text="The installation's signature over organization and public key."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True, blank=True, help_text="Signs nothing any more.")
    distrusted_at = models.DateTimeField(
        null=True, blank=True, help_text="What it signed is not believed any more."
    )

    objects = SigningKeyQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint("organization", "key_id", name="signing_key_once"),
            models.UniqueConstraint(
                "organization",
                name="signing_key_one_is_current",
                condition=Q(retired_at__isnull=True),
            ),
            models.CheckConstraint(
                name="distrusted_key_is_retired",
                condition=Q(distrusted_at__isnull=True) | Q(retired_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.key_id


class VersionSignature(models.Model):
    """A further signature over a version, whose own row never changes."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="resigned")
    key_id = models.CharField(max_length=16)
    signature = models.CharField(max_length=88)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["created_at"]
        constraints = [
            models.UniqueConstraint("version", "key_id", name="version_signed_once_per_key")
        ]

    def __str__(self) -> str:
        return f"{self.key_id} over {self.version_id}"
