from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from tools.models.ids import new_id
from tools.models.organization import Organization


class ToolGroup(models.Model):
    """A group of tools that is granted by name. Names match exactly (ruling 3)."""

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
    parent = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="children",
        help_text="A tool in this group is also in its parent (ruling 19).",
    )
    schedule = models.JSONField(
        default=list,
        blank=True,
        help_text="Windows in which the group is open, in the organization's time zone; "
        "none means always.",
    )
    max_queue_age_s = models.FloatField(
        null=True, blank=True, help_text="Closed while a call has waited longer than this."
    )
    max_cpu_percent = models.FloatField(
        null=True, blank=True, help_text="Closed while the processors are busier than this."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        permissions = [("execute_toolgroup", "Can execute every tool of the group")]
        constraints = [
            models.UniqueConstraint("organization", "name", name="group_name_once"),
            models.CheckConstraint(
                name="group_name_is_no_wildcard", condition=~Q(name="*") & ~Q(name="")
            ),
            models.CheckConstraint(
                name="group_is_not_its_own_parent",
                condition=Q(parent__isnull=True) | ~Q(parent=F("id")),
            ),
            models.CheckConstraint(
                name="group_limits_are_sensible",
                condition=(Q(max_queue_age_s__isnull=True) | Q(max_queue_age_s__gt=0))
                & (
                    Q(max_cpu_percent__isnull=True)
                    | Q(max_cpu_percent__gt=0, max_cpu_percent__lte=100)
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.name
