"""Schemas that an organization offers for the validation of content."""

from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization


class SchemaKind(models.TextChoices):
    """The language of a schema."""

    JSON = "json-schema"
    TABLE = "table-schema"
    XML = "xml-schema"


class ContentSchemaQuerySet(models.QuerySet["ContentSchema"]):
    def with_latest(self) -> "ContentSchemaQuerySet":
        """Each row knows the number of its newest version as `latest`."""
        return self.annotate(latest=models.Max("versions__number"))


class ContentSchema(models.Model):
    """A schema that `validate_content` knows by name. Its newest version counts."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="content_schemas"
    )
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=20, choices=SchemaKind.choices)
    description = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = ContentSchemaQuerySet.as_manager()
    latest: int

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="content_schema_name_once"),
            models.CheckConstraint(
                name="content_schema_name_is_plain",
                condition=Q(name__regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"),
            ),
            models.CheckConstraint(
                name="content_schema_kind_is_known", condition=Q(kind__in=SchemaKind.values)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ContentSchemaVersion(models.Model):
    """One version of a schema; the database refuses changes of it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    schema = models.ForeignKey(ContentSchema, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    document = models.JSONField(help_text="An object; of an XML Schema its text.")
    digest = models.CharField(max_length=71)
    note = models.CharField(max_length=1000, blank=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["schema", "-number"]
        constraints = [
            models.UniqueConstraint("schema", "number", name="content_schema_version_once"),
        ]

    def __str__(self) -> str:
        return f"{self.schema.name} {self.number}"
