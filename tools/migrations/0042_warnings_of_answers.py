from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0041_lookalike_names"),
    ]

    operations = [
        migrations.AddField(
            model_name="cacheentry",
            name="warnings",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Of the answer, without those of the call that it was found for.",
            ),
        ),
    ]
