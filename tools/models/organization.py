"""Organizations and their license tiers."""

from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import F, Q

from sandbox.spec import IsolationLevel
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.models.ids import new_id


class LicenseTier(models.Model):
    """The features that an organization's license includes. Rows an administrator edits (ruling
    8)."""

    name = models.CharField(max_length=60, unique=True)
    rank = models.PositiveSmallIntegerField(
        unique=True, help_text="Order of the tiers, the smallest first."
    )
    builtin_tools = ArrayField(
        models.CharField(max_length=128),
        null=True,
        blank=True,
        help_text="Built-in tools of this tier. Empty value (null) means all of them.",
    )
    max_custom_tools = models.PositiveIntegerField(
        null=True, blank=True, help_text="Custom tools at most. Empty means unlimited."
    )
    isolation_levels = ArrayField(
        models.CharField(max_length=10),
        null=True,
        blank=True,
        help_text="Isolation levels that tools may ask for. Empty value (null) means all of them.",
    )
    custom_sandbox_profiles = models.BooleanField(default=False)

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.CheckConstraint(
                name="tier_profiles_need_unlimited_tools",
                condition=Q(custom_sandbox_profiles=False) | Q(max_custom_tools__isnull=True),
                violation_error_message="Only a tier with unlimited tools may have own profiles.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def includes_builtin(self, name: str) -> bool:
        listed = self.builtin_tools is None or name in self.builtin_tools
        return listed or name in IN_EVERY_LICENSE


_NEXT_REVISION = """
UPDATE tools_organization SET revision = revision + 1 WHERE id = %s RETURNING revision
"""


class OrganizationQuerySet(models.QuerySet["Organization"]):
    def next_revision(self, pk: UUID) -> int:
        """Increment the revision of the organization's catalog and return it; call inside a
        transaction.

        The row stays locked until the transaction ends, so changes to one catalog happen one after
        the other, and tools are counted correctly afterwards.
        """
        with connection.cursor() as cursor:
            cursor.execute(_NEXT_REVISION, [pk])
            found = cursor.fetchone()
        if found is None:
            raise self.model.DoesNotExist(f"There is no organization {pk}.")
        revision: int = found[0]
        return revision

    def next_revisions(self) -> dict[UUID, int]:
        """The same for each of these organizations, in two statements.

        Locked in the order of their keys, so that of two changes one waits for the other.
        """
        rows = self.order_by("pk").select_for_update(no_key=True)
        revisions = {pk: before + 1 for pk, before in rows.values_list("pk", "revision")}
        Organization.objects.filter(pk__in=revisions).update(revision=F("revision") + 1)
        return revisions


class Organization(models.Model):
    """A tenant: every other row belongs to one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=200)
    tier = models.ForeignKey(LicenseTier, on_delete=models.PROTECT, related_name="organizations")
    revision = models.BigIntegerField(
        default=0,
        editable=False,
        help_text="Counts every change of tools, groups and grants; processes compare it.",
    )
    minimum_isolation = models.CharField(
        max_length=10,
        choices=[(level.value, level.value) for level in IsolationLevel],
        default=IsolationLevel.STANDARD,
        help_text="No tool runs at a lower level, whatever it says itself.",
    )
    allowed_hosts = models.JSONField(
        default=list, blank=True, help_text="What the built-in web_fetch may reach."
    )
    time_zone = models.CharField(
        max_length=64,
        default="UTC",
        help_text="In which the windows of groups and the days of quotas are meant.",
    )
    license_id = models.CharField(max_length=100, blank=True, editable=False)
    license_expires_at = models.DateTimeField(null=True, blank=True)
    license_grace_days = models.PositiveSmallIntegerField(default=14)
    license_document = models.JSONField(
        null=True, blank=True, editable=False, help_text="The signed licence that was installed."
    )
    max_concurrency = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many of its calls run at once; empty: no limit."
    )
    max_queue_depth = models.PositiveIntegerField(
        default=1000, help_text="How many of its calls may wait; one more is refused."
    )
    workspace_max_files = models.PositiveIntegerField(
        default=10_000, help_text="How many files and folders its workspace may hold."
    )
    workspace_max_bytes = models.PositiveBigIntegerField(
        default=1024**3, help_text="How much its workspace may hold."
    )
    output_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="For how many days it keeps outputs of calls; empty: without an end.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OrganizationQuerySet.as_manager()

    class Meta:
        ordering = ["slug"]
        permissions = [
            ("act_in_organization", "Can act in this organization"),
        ]
        constraints = [
            models.CheckConstraint(
                name="organization_slug_is_plain",
                condition=Q(slug__regex=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
                violation_error_message="Lower-case letters, digits and hyphens only.",
            ),
            models.CheckConstraint(
                name="organization_revision_not_negative", condition=Q(revision__gte=0)
            ),
            models.CheckConstraint(
                name="organization_isolation_is_known",
                condition=Q(minimum_isolation__in=[*IsolationLevel]),
            ),
        ]

    def __str__(self) -> str:
        return self.slug
