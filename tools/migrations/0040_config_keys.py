from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0039_findings_of_servers"),
    ]

    operations = [
        migrations.AddField(
            model_name="tool",
            name="config_key",
            field=models.CharField(
                blank=True,
                db_default="",
                editable=False,
                help_text="The identifier of the configuration item `tool/<id>` that it was "
                "imported as.",
                max_length=128,
            ),
        ),
        migrations.AddConstraint(
            model_name="tool",
            constraint=models.UniqueConstraint(
                condition=models.Q(("deleted_at__isnull", True))
                & models.Q(("config_key", ""), _negated=True),
                fields=("organization", "config_key"),
                name="tool_config_key_once",
            ),
        ),
    ]
