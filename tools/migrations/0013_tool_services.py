from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0012_trust"),
    ]

    operations = [
        *[
            migrations.AddField(
                model_name="toolservice",
                name=name,
                field=models.CharField(
                    blank=True, default="", db_default="", max_length=length, **more
                ),
            )
            for name, length, more in (
                ("request_queue", 500, {}),
                ("response_queue", 500, {}),
                (
                    "key",
                    64,
                    {
                        "editable": False,
                        "help_text": "The public key it signs with, in base64; none for one that "
                        "people wrote.",
                    },
                ),
                ("digest", 80, {"editable": False}),
                ("announced_digest", 80, {"editable": False}),
            )
        ],
        migrations.AddField(
            model_name="toolservice",
            name="announcement",
            field=models.TextField(
                blank=True,
                default="",
                db_default="",
                editable=False,
                help_text="The document it announced last.",
            ),
        ),
        migrations.AddField(
            model_name="toolservice",
            name="config_params",
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
        *[
            migrations.AddField(
                model_name="toolservice",
                name=name,
                field=models.DateTimeField(blank=True, editable=False, null=True),
            )
            for name in ("lease_until", "last_seen")
        ],
        migrations.AddField(
            model_name="toolservice",
            name="serving",
            field=models.BooleanField(
                db_default=True,
                default=True,
                editable=False,
                help_text="Whether a process stands for what was approved, by its lease.",
            ),
        ),
        migrations.AddField(
            model_name="toolservice",
            name="status",
            field=models.CharField(
                choices=[
                    ("approved", "Approved"),
                    ("pending", "Pending"),
                    ("rejected", "Rejected"),
                ],
                db_default="approved",
                default="approved",
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="toolservice",
            constraint=models.UniqueConstraint(
                models.F("organization"),
                models.F("request_queue"),
                condition=~models.Q(request_queue=""),
                name="tool_service_queue_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="toolservice",
            constraint=models.CheckConstraint(
                condition=models.Q(status__in=["approved", "pending", "rejected"]),
                name="tool_service_status_is_known",
            ),
        ),
    ]
