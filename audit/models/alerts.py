"""Models of alert rules, alerts, notification channels and deliveries."""

from django.db import models
from django.db.models import Case, FloatField, Func, IntegerField, Q, When
from django.db.models.functions import Cast, Now
from uuid_utils.compat import uuid7

from audit.events import Severity

_SECONDS = 1e11  # more than any time has


def worst_first(field: str = "severity") -> Case:
    """To order by."""
    whens = [When(Q((field, severity)), then=-severity.rank) for severity in Severity]
    return Case(*whens, output_field=IntegerField())


class AlertQuerySet(models.QuerySet["Alert"]):
    def open(self) -> "AlertQuerySet":
        return self.filter(acknowledged_at__isnull=True)

    def weighed(self) -> "AlertQuerySet":
        """With a `weight` to sort by: of the worst, and of those of the newest, it is the most."""
        seconds = Func(
            "last_at",
            template="extract(epoch from %(expressions)s)::float8",
            output_field=FloatField(),
        )
        return self.annotate(weight=seconds - Cast(worst_first(), FloatField()) * _SECONDS)


class Alert(models.Model):
    """A finding in the records that a person should look at. Open until a user acknowledges it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.CharField(max_length=63)
    rule = models.CharField(max_length=40)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    actor = models.CharField(max_length=200)
    subject = models.CharField(max_length=200, blank=True)
    message = models.CharField(max_length=500)
    count = models.PositiveIntegerField(help_text="Records it was raised for.")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)
    note = models.CharField(
        max_length=500, blank=True, db_default="", help_text="What came of it, in words."
    )

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ["-last_at", "-id"]
        indexes = [models.Index(fields=["organization", "-last_at", "-id"], name="alert_recent")]
        constraints = [
            models.UniqueConstraint(
                "organization",
                "rule",
                "actor",
                "subject",
                name="alert_open_once",
                condition=Q(acknowledged_at__isnull=True),
            ),
            models.CheckConstraint(
                name="alert_severity_is_known", condition=Q(severity__in=[*Severity])
            ),
            models.CheckConstraint(
                name="alert_ends_after_it_began", condition=Q(last_at__gte=models.F("first_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.actor}"


class AlertRule(models.Model):
    """What to look for over which time. `kind` names a way of looking; the rest are its values."""

    name = models.SlugField(max_length=40, unique=True)
    kind = models.CharField(max_length=40)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    description = models.CharField(max_length=300, blank=True)
    window_s = models.PositiveIntegerField(default=300)
    least = models.PositiveIntegerField(default=1, help_text="Findings before it is an alert.")
    values = models.JSONField(default=dict, blank=True, help_text="Codes, reasons: as kind needs.")
    enabled = models.BooleanField(default=True)
    looked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="alert_rule_severity_is_known", condition=Q(severity__in=[*Severity])
            ),
            models.CheckConstraint(
                name="alert_rule_looks_at_something", condition=Q(window_s__gte=1, least__gte=1)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ChannelKind(models.TextChoices):
    EMAIL = "email"
    WEBHOOK = "webhook"


class AlertChannel(models.Model):
    """A notification channel: where an organization's alerts are sent besides the pages."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.CharField(max_length=63)
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=8, choices=ChannelKind.choices)
    target = models.CharField(max_length=500, help_text="An e-mail address, or an https URL.")
    secret = models.BinaryField(null=True, editable=False, help_text="Signs a webhook; encrypted.")
    least = models.CharField(
        max_length=8,
        choices=[(s.value, s.value) for s in Severity],
        default=Severity.WARNING,
        help_text="Alerts below are not told here.",
    )
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["organization", "name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="alert_channel_name_once"),
            models.CheckConstraint(
                name="alert_channel_kind_is_known", condition=Q(kind__in=ChannelKind.values)
            ),
            models.CheckConstraint(
                name="alert_channel_severity_is_known", condition=Q(least__in=[*Severity])
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AlertDelivery(models.Model):
    """One delivery of one alert on one channel: tried until it is delivered or given up."""

    id = models.BigAutoField(primary_key=True)
    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="deliveries")
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(db_default=Now())
    delivered_at = models.DateTimeField(null=True, blank=True)
    given_up_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=300, blank=True)

    class Meta:
        verbose_name_plural = "alert deliveries"
        indexes = [
            models.Index(
                fields=["due_at"],
                name="delivery_due",
                condition=Q(delivered_at__isnull=True, given_up_at__isnull=True),
            )
        ]
        constraints = [
            models.UniqueConstraint("alert", "channel", name="delivery_once_per_channel")
        ]

    def __str__(self) -> str:
        return f"{self.alert_id} on {self.channel_id}"
