from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization


class SigningKey(models.Model):
    """A key that signs an organization's versions. It is signed by the installation's key."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="signing_keys"
    )
    key_id = models.CharField(max_length=16, editable=False)
    public = models.BinaryField(max_length=32)
    sealed = models.BinaryField()
    voucher = models.CharField(max_length=88, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(
        null=True, editable=False, help_text="Nothing new is signed; what was signed stays good."
    )
    distrusted_at = models.DateTimeField(
        null=True, editable=False, help_text="Nothing that it signed is believed."
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint("organization", "key_id", name="signing_key_once"),
            models.UniqueConstraint(
                "organization",
                condition=Q(retired_at__isnull=True),
                name="signing_key_one_is_current",
            ),
            models.CheckConstraint(
                name="distrusted_key_is_retired",
                condition=Q(distrusted_at__isnull=True) | Q(retired_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.key_id
