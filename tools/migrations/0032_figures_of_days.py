import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import tools.definitions.results

FORGET = """
CREATE FUNCTION tools_forget_day(place uuid, moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- Who adds a day up holds this alone, and would not see what is not committed yet.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('toolcrib:days:' || place, 0));
    DELETE FROM tools_dayfigures f USING tools_dayofcalls d
    WHERE d.id = f.day_id AND d.organization_id = place
        AND d.day = (moment AT TIME ZONE d.zone)::date;
    DELETE FROM tools_dayofcalls d
    WHERE d.organization_id = place AND d.day = (moment AT TIME ZONE d.zone)::date;
END $$;

CREATE FUNCTION tools_forget_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM tools_forget_day(OLD.organization_id, OLD.created_at);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM tools_forget_day(NEW.organization_id, NEW.created_at);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER execution_comes_late
    AFTER INSERT ON tools_execution
    FOR EACH ROW WHEN (NEW.created_at < now() - interval '1 minute')
    EXECUTE FUNCTION tools_forget_days();
CREATE TRIGGER execution_moves_in_time
    AFTER UPDATE ON tools_execution
    FOR EACH ROW WHEN (OLD.created_at IS DISTINCT FROM NEW.created_at)
    EXECUTE FUNCTION tools_forget_days();
CREATE TRIGGER execution_goes
    AFTER DELETE ON tools_execution
    FOR EACH ROW EXECUTE FUNCTION tools_forget_days();
"""
REMEMBER = """
DROP TRIGGER execution_goes ON tools_execution;
DROP TRIGGER execution_moves_in_time ON tools_execution;
DROP TRIGGER execution_comes_late ON tools_execution;
DROP FUNCTION tools_forget_days();
DROP FUNCTION tools_forget_day(uuid, timestamptz);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tools", "0031_retries"),
    ]

    operations = [
        migrations.CreateModel(
            name="DayFigures",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "part",
                    models.CharField(
                        choices=[
                            ("all", "All"),
                            ("agent", "Agent"),
                            ("tool", "Tool"),
                            ("pair", "Pair"),
                        ],
                        max_length=5,
                    ),
                ),
                ("tool_name", models.CharField(blank=True, max_length=128)),
                ("calls", models.PositiveIntegerField()),
                ("failures", models.PositiveIntegerField()),
                ("denials", models.PositiveIntegerField()),
                ("cached", models.PositiveIntegerField()),
                ("cost", models.DecimalField(decimal_places=6, max_digits=24)),
                ("median_ms", models.FloatField(null=True)),
                ("p95_ms", models.FloatField(null=True)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="DayOfCalls",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("zone", models.CharField(max_length=64)),
                ("day", models.DateField()),
                (
                    "unfinished",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        help_text="Executions that were not over yet.",
                    ),
                ),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ["-day"],
                "default_permissions": (),
            },
        ),
        migrations.AlterField(
            model_name="execution",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="executions",
                to="tools.organization",
            ),
        ),
        migrations.AlterField(
            model_name="execution",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                help_text="Who called.",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="executions",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                fields=["organization", "tool_name", "-created_at"], name="execution_of_tool"
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(
                    (
                        "status__in",
                        [
                            tools.definitions.results.Status["CANCELLED"],
                            tools.definitions.results.Status["FAILED"],
                            tools.definitions.results.Status["PERMISSION_DENIED"],
                            tools.definitions.results.Status["SANDBOX_ERROR"],
                            tools.definitions.results.Status["TIMEOUT"],
                            tools.definitions.results.Status["VALIDATION_ERROR"],
                        ],
                    )
                ),
                fields=["organization", "status", "-created_at"],
                name="execution_not_well",
            ),
        ),
        migrations.AddField(
            model_name="dayfigures",
            name="agent",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="tools.agent",
            ),
        ),
        migrations.AddField(
            model_name="dayofcalls",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="days_of_calls",
                to="tools.organization",
            ),
        ),
        migrations.AddField(
            model_name="dayfigures",
            name="day",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="figures",
                to="tools.dayofcalls",
            ),
        ),
        migrations.AddConstraint(
            model_name="dayofcalls",
            constraint=models.UniqueConstraint(
                models.F("organization"),
                models.F("zone"),
                models.F("day"),
                name="day_of_calls_once",
            ),
        ),
        migrations.AddIndex(
            model_name="dayfigures",
            index=models.Index(
                fields=["day", "part", "agent", "tool_name"], name="figures_of_a_day"
            ),
        ),
        migrations.RunSQL(FORGET, REMEMBER),
    ]
