from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0036_ids_of_people"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("error_code", ""), _negated=True),
                fields=["organization", "error_code", "-id"],
                name="execution_with_code",
            ),
        ),
    ]
