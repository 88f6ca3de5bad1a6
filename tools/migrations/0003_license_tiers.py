"""The four tiers of specification S3, section 7, as ruling 8 reads it."""

from django.db import migrations

CORE = ["read_file", "write_file", "search_knowledge", "web_fetch", "execute_ckvs_query"]
TEAMS = [*CORE, "send_message", "create_entity", "validate_content"]
TIERS = (
    {"name": "Core", "rank": 1, "builtin_tools": CORE, "max_custom_tools": 0},
    {"name": "WriterPro", "rank": 2, "builtin_tools": CORE, "max_custom_tools": 10},
    {"name": "Teams", "rank": 3, "builtin_tools": TEAMS, "max_custom_tools": 50},
    {
        "name": "Enterprise",
        "rank": 4,
        "builtin_tools": None,
        "max_custom_tools": None,
        "custom_sandbox_profiles": True,
    },
)


def add_tiers(apps, schema_editor):
    tier = apps.get_model("tools", "LicenseTier")
    for row in TIERS:
        tier.objects.get_or_create(name=row["name"], defaults=row)


class Migration(migrations.Migration):
    dependencies = [("tools", "0002_immutable_versions")]
    operations = [migrations.RunPython(add_tiers, migrations.RunPython.noop)]
