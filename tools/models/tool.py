"""Tools, their signed versions, and the words by which they are found."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now

from tools.definitions.vocabulary import ToolType
from tools.models.agent import Agent
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.user import User

LONGEST_QUESTION = 300


class Skeleton(models.Func):
    """`tools.definitions.texts.lookalikes.skeleton` of a tool's name, in SQL, for an index."""

    template = (
        "replace(translate(lower(translate(%(expressions)s, 'I', 'l')), '01-_.', 'ol'), 'rn', 'm')"
    )
    output_field = models.TextField()


class ToolStatus(models.TextChoices):
    ACTIVE = "active"
    DISABLED = "disabled"
    PENDING = "pending"
    QUARANTINED = "quarantined"


class Origin(models.TextChoices):
    """The kind of author of a version."""

    PRODUCT = "product"
    PERSON = "person"
    AGENT = "agent"
    IMPORT = "import"


VOUCHED = frozenset({Origin.PRODUCT, Origin.PERSON})


class OnDrift(models.TextChoices):
    """The handling of a tool whose upstream changed, until a person has reviewed the difference."""

    REFUSE = "refuse"
    SERVE = "serve", "serve the approved version"


class ToolQuerySet(models.QuerySet["Tool"]):
    def present(self) -> "ToolQuerySet":
        return self.filter(deleted_at__isnull=True)

    def custom(self) -> "ToolQuerySet":
        """Those that count against a tier's limit."""
        return self.present().exclude(type=ToolType.BUILTIN)


class Tool(models.Model):
    """A name in an organization's catalog. Its versions have the definitions."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="tools")
    name = models.CharField(max_length=128)
    config_key = models.CharField(
        max_length=128,
        blank=True,
        editable=False,
        db_default="",
        help_text="The identifier of the configuration item `tool/<id>` that it was imported as.",
    )
    type = models.CharField(max_length=30, choices=[(t.value, t.value) for t in ToolType])
    status = models.CharField(max_length=12, choices=ToolStatus.choices, default=ToolStatus.ACTIVE)
    status_reason = models.CharField(
        max_length=200,
        blank=True,
        editable=False,
        db_default="",
        help_text="Why it is not active, where known.",
    )
    critical = models.BooleanField(
        default=False, db_default=False, help_text="Every call needs the consent of two people."
    )
    max_concurrency = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many of its calls run at once; empty: no limit."
    )
    on_drift = models.CharField(
        max_length=6,
        choices=OnDrift.choices,
        default=OnDrift.REFUSE,
        db_default=OnDrift.REFUSE,
        help_text="What becomes of its calls when its upstream changed.",
    )
    version = models.ForeignKey(
        "tools.ToolVersion",
        on_delete=models.PROTECT,
        null=True,
        editable=False,
        related_name="+",
        help_text="The version in use; only null while the first one is being written.",
    )
    revision = models.BigIntegerField(
        editable=False, help_text="The organization's revision that changed this tool last."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Kept: evidence refers to its versions."
    )

    objects = ToolQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        permissions = [("execute_tool", "Can execute the tool")]
        indexes = [
            models.Index(fields=["organization", "revision"], name="tool_changed_since"),
            models.Index(
                "organization",
                Skeleton("name"),
                name="tool_lookalike",
                condition=Q(deleted_at__isnull=True),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "organization",
                Lower("name"),
                name="tool_name_once_per_organization",
                condition=Q(deleted_at__isnull=True),
                violation_error_message="A tool of that name exists.",
            ),
            models.UniqueConstraint(
                fields=["organization", "config_key"],
                name="tool_config_key_once",
                condition=Q(deleted_at__isnull=True) & ~Q(config_key=""),
            ),
            models.CheckConstraint(
                name="tool_name_is_plain", condition=Q(name__regex=r"^[A-Za-z0-9_.-]{1,128}$")
            ),
            models.CheckConstraint(
                name="tool_status_is_known", condition=Q(status__in=ToolStatus.values)
            ),
            models.CheckConstraint(
                name="tool_on_drift_is_known", condition=Q(on_drift__in=OnDrift.values)
            ),
            models.CheckConstraint(name="tool_type_is_known", condition=Q(type__in=[*ToolType])),
            models.CheckConstraint(
                name="deleted_tool_is_disabled",
                condition=Q(deleted_at__isnull=True) | Q(status=ToolStatus.DISABLED),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def enabled(self) -> bool:
        return self.status == ToolStatus.ACTIVE


class ToolVersion(models.Model):
    """One definition, as it was written. A trigger refuses every change and every deletion."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    label = models.CharField(max_length=40)
    definition = models.JSONField()
    digest = models.CharField(max_length=71)
    key_id = models.CharField(max_length=16)
    signature = models.CharField(max_length=88)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)
    note = models.CharField(
        max_length=1000, blank=True, db_default="", help_text="Why it was written, in its words."
    )
    origin = models.CharField(
        max_length=7,
        choices=Origin.choices,
        default=Origin.IMPORT,
        db_default=Origin.IMPORT,  # the default for an unknown author
    )

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint("tool", "number", name="tool_version_number_once"),
            models.UniqueConstraint("tool", "label", name="tool_version_label_once"),
            models.CheckConstraint(name="tool_version_counts_from_one", condition=Q(number__gte=1)),
            models.CheckConstraint(
                name="tool_version_digest_is_sha256",
                condition=Q(digest__regex=r"^sha256:[0-9a-f]{64}$"),
            ),
            models.CheckConstraint(
                name="tool_version_is_signed", condition=~Q(signature="") & ~Q(key_id="")
            ),
            models.CheckConstraint(
                name="tool_version_origin_is_known", condition=Q(origin__in=Origin.values)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.definition.get('name')} {self.label}"


class ToolWords(models.Model):
    """The search entry of a tool: the words of its current version, and of questions it
    answered."""

    tool = models.OneToOneField(
        Tool, on_delete=models.CASCADE, primary_key=True, related_name="found_by"
    )
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=71, help_text="Of the version whose words these are.")
    words = SearchVectorField()
    letters = models.TextField()

    class Meta:
        # The organization is first, so that a search does not read the catalogs of others.
        indexes = [
            GinIndex(fields=["organization", "words"], name="tool_by_word", fastupdate=False),
            GinIndex(
                "organization",
                OpClass("letters", name="gin_trgm_ops"),
                name="tool_by_letters",
                fastupdate=False,
            ),
        ]

    def __str__(self) -> str:
        return str(self.tool_id)


class ToolSearch(models.Model):
    """A search for tools, until it is known which tool was called after it."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, related_name="+")
    question = models.CharField(max_length=LONGEST_QUESTION)
    found = ArrayField(models.UUIDField())
    asked_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["asked_at"], name="tool_search_by_age"),
            models.Index(fields=["organization"], name="tool_search_of_place"),
        ]

    def __str__(self) -> str:
        return self.question


class ToolQuestion(models.Model):
    """The words of a question after which this tool was called with success."""

    id = models.BigAutoField(primary_key=True)
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="questions")
    question = models.CharField(max_length=LONGEST_QUESTION)
    times = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint("tool", "question", name="tool_question_once")]

    def __str__(self) -> str:
        return self.question


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
