from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization


class ToolGroup(models.Model):
    """A name under which tools are handed out. Names match exactly (ruling 3)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="groups")
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=1000, blank=True)
    permissions = ArrayField(
        models.CharField(max_length=100),
        default=list,
        blank=True,
        help_text="Permissions that whoever is granted this group holds.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="group_name_once"),
            models.CheckConstraint(
                name="group_name_is_no_wildcard", condition=~Q(name="*") & ~Q(name="")
            ),
        ]

    def __str__(self) -> str:
        return self.name
