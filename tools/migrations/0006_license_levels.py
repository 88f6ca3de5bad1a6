"""Which isolation levels tools may ask for: specification S3, section 7, calls three tiers Standard
and the highest one custom."""

from django.db import migrations

UP_TO_STANDARD = ("Core", "WriterPro", "Teams")
LEVELS = ["None", "Standard"]


def add_levels(apps, schema_editor):
    tiers = apps.get_model("tools", "LicenseTier").objects
    tiers.filter(name__in=UP_TO_STANDARD, isolation_levels=None).update(isolation_levels=LEVELS)


class Migration(migrations.Migration):
    dependencies = [("tools", "0005_policy")]
    operations = [migrations.RunPython(add_levels, migrations.RunPython.noop)]
