"""Indexes of request records that no query reads: nothing looks one up by its execution, and the
index of the newest of an organization serves its foreign key."""

import django.db.models.deletion
from django.db import migrations, models

LIKE = "tools_requestrecord_tool_filter_id_e2450aa9_like"


class Migration(migrations.Migration):
    dependencies = [("tools", "0050_derived_events")]

    operations = [
        migrations.RemoveIndex("requestrecord", "request_record_of_execution"),
        migrations.AlterField(
            "requestrecord",
            "organization",
            models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tools.organization",
            ),
        ),
        migrations.RunSQL(
            f"DROP INDEX {LIKE}",
            f"CREATE INDEX {LIKE} ON tools_requestrecord (tool_filter_id varchar_pattern_ops)",
        ),
    ]
