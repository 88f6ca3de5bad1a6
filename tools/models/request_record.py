"""Request records: what a request asked for and what was left for it (Tool groups specification,
8.2)."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from tools.models.ids import new_id
from tools.models.organization import Organization


class CatalogNames(models.Model):
    """Every tool of an organization's catalog at one revision."""

    digest = models.CharField(primary_key=True, max_length=64)
    names = ArrayField(models.CharField(max_length=128))
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.digest[:12]


class ToolFilter(models.Model):
    """The tools that groups and a state left of one revision's catalog: written once, referred to
    often.

    What the groups took away is the rest of the catalog, which is most of it, and is not repeated.
    """

    digest = models.CharField(primary_key=True, max_length=64)
    catalog = models.ForeignKey(CatalogNames, on_delete=models.PROTECT, related_name="+")
    available_tools = ArrayField(models.CharField(max_length=128))
    filtered_by_state = ArrayField(models.CharField(max_length=128))
    out_of_service = ArrayField(models.CharField(max_length=128))
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.digest[:12]

    @property
    def filtered_by_group(self) -> list[str]:
        rest = {*self.available_tools, *self.filtered_by_state, *self.out_of_service}
        return [name for name in self.catalog.names if name not in rest]


class RequestRecord(models.Model):
    """Partitioned by month, by its id."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,  # the index of what is recent serves
    )
    request_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=10, help_text="list, execute or agent")
    actor_kind = models.CharField(max_length=10)
    actor = models.CharField(max_length=200)
    user_id = models.UUIDField()
    session_id = models.UUIDField(null=True, blank=True)
    execution_id = models.UUIDField(null=True, blank=True)
    requested_groups = ArrayField(models.CharField(max_length=100))
    initial_state = models.CharField(max_length=100)
    # Each call would pay for a constraint and an index; retention leaves what a record may name.
    tool_filter = models.ForeignKey(
        ToolFilter,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    state_transitions = models.JSONField(default=list)
    execution_ms = models.FloatField(null=True, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["organization", "-id"], name="request_record_recent")]

    def __str__(self) -> str:
        return f"{self.kind} {self.request_id}"
