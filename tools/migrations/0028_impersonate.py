from django.conf import settings
from django.db import migrations, models
from django.db.models.deletion import PROTECT

_MADE_BY = "Who made it at the playground, as themselves or in the name of its agent."


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0027_failed_executions"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="agent",
            options={
                "ordering": ["slug"],
                "permissions": [("impersonate_agent", "Can call tools as the agent")],
            },
        ),
        migrations.AddField(
            model_name="execution",
            name="made_by",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text=_MADE_BY,
                null=True,
                on_delete=PROTECT,
                related_name="executions_made",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("made_by__isnull", False)),
                fields=["made_by", "-created_at"],
                name="execution_at_playground",
            ),
        ),
    ]
