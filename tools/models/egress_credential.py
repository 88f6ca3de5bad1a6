from django.db import models

from tools.models.ids import new_id
from tools.models.organization import Organization


class EgressCredential(models.Model):
    """A header that the egress broker adds to requests. Only the worker decrypts it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="egress_credentials"
    )
    name = models.CharField(max_length=63)
    header = models.CharField(max_length=64, help_text="Such as Authorization.")
    sealed = models.BinaryField(
        help_text="The value, encrypted; see tools/catalog/signatures/sealing.py."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="credential_name_once"),
            models.CheckConstraint(
                name="credential_name_is_plain",
                condition=models.Q(name__regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"),
            ),
            models.CheckConstraint(
                name="credential_header_is_one",
                condition=models.Q(header__regex=r"^[A-Za-z0-9_-]{1,64}$"),
            ),
        ]

    def __str__(self) -> str:
        return self.name
