import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import tools.models.ids


class Migration(migrations.Migration):
    dependencies = [
        ("sessions", "0001_initial"),
        ("tools", "0028_impersonate"),
    ]

    operations = [
        migrations.CreateModel(
            name="PersonSession",
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
                ("began_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("source_ip", models.CharField(blank=True, max_length=45)),
                ("user_agent", models.CharField(blank=True, max_length=200)),
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="person",
                        to="sessions.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="browser_sessions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["-began_at"]},
        ),
    ]
