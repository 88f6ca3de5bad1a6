"""Sandbox profiles, and credentials for the hosts that tools may reach."""

from django.db import models
from django.db.models import Func, Q
from django.db.models.lookups import Exact

from sandbox.spec import MIB, Backend, IsolationLevel
from tools.models.ids import new_id
from tools.models.organization import Organization


class JsonType(Func):
    """`array`, `object`, `string` … of a JSON column."""

    function = "jsonb_typeof"
    output_field = models.CharField()


class SandboxProfile(models.Model):
    """What tools that name it may see, reach and use up in the sandbox."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="sandbox_profiles"
    )
    name = models.CharField(max_length=63)
    description = models.CharField(max_length=1000, blank=True)
    backend = models.CharField(
        max_length=10, choices=[(b.value, b.value) for b in Backend], default=Backend.PROCESS
    )
    minimum_isolation = models.CharField(
        max_length=10,
        choices=[(level.value, level.value) for level in IsolationLevel],
        default=IsolationLevel.STANDARD,
    )
    allow_filesystem = models.BooleanField(default=False)
    allowed_paths = models.JSONField(default=list, blank=True)
    allow_network = models.BooleanField(default=False)
    allowed_hosts = models.JSONField(default=list, blank=True)
    proxy = models.BooleanField(
        default=False, help_text="Also an HTTP proxy inside, for programs that know one."
    )
    network_when_restricted = models.BooleanField(
        default=False, help_text="Keep the network at level Restricted, which else has none."
    )
    max_memory_bytes = models.BigIntegerField(default=256 * MIB)
    max_cpu_s = models.FloatField(default=300)
    max_processes = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty: as many as the level has."
    )
    max_disk_bytes = models.BigIntegerField(default=16 * MIB)
    max_files = models.PositiveIntegerField(default=1024)
    quota_bytes = models.BigIntegerField(
        default=1024 * MIB, help_text="What may lie in each path that is shared rw."
    )
    quota_files = models.PositiveIntegerField(
        default=10_000, help_text="The same in files and directories."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="profile_name_once"),
            models.CheckConstraint(
                name="profile_name_is_plain",
                condition=Q(name__regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"),
            ),
            models.CheckConstraint(
                name="profile_backend_is_known", condition=Q(backend__in=[*Backend])
            ),
            models.CheckConstraint(
                name="profile_isolation_is_known",
                condition=Q(minimum_isolation__in=[*IsolationLevel]),
            ),
            models.CheckConstraint(
                name="profile_limits_are_positive",
                condition=Q(
                    Q(max_processes__isnull=True) | Q(max_processes__gt=0),
                    max_memory_bytes__gt=0,
                    max_cpu_s__gt=0,
                    max_disk_bytes__gt=0,
                    max_files__gt=0,
                    quota_bytes__gt=0,
                    quota_files__gt=0,
                ),
            ),
            models.CheckConstraint(
                name="profile_backend_has_that_network",
                condition=~Q(backend__in=[Backend.DEGRADED, Backend.MONTY])
                | Q(allow_network=False),
            ),
            models.CheckConstraint(
                name="profile_lists_are_lists",
                condition=Q(
                    Exact(JsonType("allowed_paths"), "array"),
                    Exact(JsonType("allowed_hosts"), "array"),
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class EgressCredential(models.Model):
    """A header that the egress broker adds to requests. Only the worker decrypts it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="egress_credentials"
    )
    name = models.CharField(max_length=63)
    header = models.CharField(max_length=64, help_text="Such as Authorization.")
    sealed = models.BinaryField(
        help_text="The value, encrypted; see tools/catalog/signatures/keys.py."
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
