from django.db import migrations, models

import tools.models.tool


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0040_config_keys"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="tool",
            index=models.Index(
                "organization",
                tools.models.tool.Skeleton("name"),
                condition=models.Q(("deleted_at__isnull", True)),
                name="tool_lookalike",
            ),
        ),
    ]
