"""Sandbox profiles, credentials of the egress broker, what an organization demands and allows, and
who wrote a version."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models.lookups import Exact

import tools.models.ids
from tools.models.sandbox_profile import JsonType

BACKENDS = ["process", "degraded", "container", "monty"]
LEVELS = ["None", "Standard", "Strict", "Restricted"]
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

# Until now only people and the product could write tools. The trigger that keeps versions as they
# are is set aside for this one column, which no signature of theirs speaks of.
SAY_WHO = """
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE tools_toolversion DISABLE TRIGGER tool_version_never_changes;
UPDATE tools_toolversion v
SET origin = CASE WHEN t.type = 'builtin' THEN 'product' ELSE 'person' END
FROM tools_tool t WHERE t.id = v.tool_id;
ALTER TABLE tools_toolversion ENABLE TRIGGER tool_version_never_changes;
"""


def choices(values):
    return [(value, value) for value in values]


class Migration(migrations.Migration):
    dependencies = [("tools", "0003_license_tiers")]

    operations = [
        migrations.CreateModel(
            name="EgressCredential",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=tools.models.ids.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=63)),
                ("header", models.CharField(help_text="Such as Authorization.", max_length=64)),
                (
                    "sealed",
                    models.BinaryField(
                        help_text="The value, encrypted; see tools/catalog/signatures/keys.py."
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="egress_credentials",
                        to="tools.organization",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint("organization", "name", name="credential_name_once"),
                    models.CheckConstraint(
                        condition=models.Q(name__regex=NAME), name="credential_name_is_plain"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(header__regex="^[A-Za-z0-9_-]{1,64}$"),
                        name="credential_header_is_one",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SandboxProfile",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=tools.models.ids.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=63)),
                ("description", models.CharField(blank=True, max_length=1000)),
                (
                    "backend",
                    models.CharField(choices=choices(BACKENDS), default="process", max_length=10),
                ),
                (
                    "minimum_isolation",
                    models.CharField(choices=choices(LEVELS), default="Standard", max_length=10),
                ),
                ("allow_filesystem", models.BooleanField(default=False)),
                ("allowed_paths", models.JSONField(blank=True, default=list)),
                ("allow_network", models.BooleanField(default=False)),
                ("allowed_hosts", models.JSONField(blank=True, default=list)),
                (
                    "proxy",
                    models.BooleanField(
                        default=False,
                        help_text="Also an HTTP proxy inside, for programs that know one.",
                    ),
                ),
                (
                    "network_when_restricted",
                    models.BooleanField(
                        default=False,
                        help_text="Keep the network at level Restricted, which else has none.",
                    ),
                ),
                ("max_memory_bytes", models.BigIntegerField(default=268435456)),
                ("max_cpu_s", models.FloatField(default=300)),
                (
                    "max_processes",
                    models.PositiveIntegerField(
                        blank=True, help_text="Empty: as many as the level has.", null=True
                    ),
                ),
                ("max_disk_bytes", models.BigIntegerField(default=16777216)),
                ("max_files", models.PositiveIntegerField(default=1024)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sandbox_profiles",
                        to="tools.organization",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint("organization", "name", name="profile_name_once"),
                    models.CheckConstraint(
                        condition=models.Q(name__regex=NAME), name="profile_name_is_plain"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(backend__in=BACKENDS), name="profile_backend_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(minimum_isolation__in=LEVELS),
                        name="profile_isolation_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(max_processes__isnull=True) | models.Q(max_processes__gt=0),
                            max_memory_bytes__gt=0,
                            max_cpu_s__gt=0,
                            max_disk_bytes__gt=0,
                            max_files__gt=0,
                        ),
                        name="profile_limits_are_positive",
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(backend__in=["degraded", "monty"])
                        | models.Q(allow_network=False),
                        name="profile_backend_has_that_network",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            Exact(JsonType("allowed_paths"), "array"),
                            Exact(JsonType("allowed_hosts"), "array"),
                        ),
                        name="profile_lists_are_lists",
                    ),
                ],
            },
        ),
        migrations.AddField(
            model_name="organization",
            name="minimum_isolation",
            field=models.CharField(
                choices=choices(LEVELS),
                default="Standard",
                help_text="No tool runs at a lower level, whatever it says itself.",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="organization",
            name="allowed_hosts",
            field=models.JSONField(
                blank=True, default=list, help_text="What the built-in web_fetch may reach."
            ),
        ),
        migrations.AddConstraint(
            model_name="organization",
            constraint=models.CheckConstraint(
                condition=models.Q(minimum_isolation__in=LEVELS),
                name="organization_isolation_is_known",
            ),
        ),
        migrations.AddField(
            model_name="toolversion",
            name="origin",
            field=models.CharField(
                choices=[
                    ("product", "Product"),
                    ("person", "Person"),
                    ("agent", "Agent"),
                    ("import", "Import"),
                ],
                db_default="import",
                default="import",
                max_length=7,
            ),
        ),
        migrations.RunSQL(SAY_WHO, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="toolversion",
            constraint=models.CheckConstraint(
                condition=models.Q(origin__in=["product", "person", "agent", "import"]),
                name="tool_version_origin_is_known",
            ),
        ),
    ]
