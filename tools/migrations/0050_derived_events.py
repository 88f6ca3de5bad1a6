"""Events that the row of an execution says are derived from it, by a view.

Rows that are stored already are shown as they are: the first start is derived where no event is
stored, the end where no terminal one is. The way back stores what was derived.

A migration that replaces `tools_execution` or a column that the view reads drops the view before
with `DROP_VIEW`, and creates it again with `CREATE_VIEW`.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now

from tools.definitions.results import TERMINAL, EventType

_TYPES = [(kind.value, kind.value) for kind in EventType]
# By execution, so that the newest are found by walking its key.
CREATE_VIEW = """
CREATE VIEW tools_event AS
SELECT e.id || '.' || v.sequence AS id, e.id AS execution_id, v.sequence, v.type, v.message,
    v.created_at, CASE WHEN v.derived THEN e.completed_at END AS ended_at, v.derived
FROM tools_execution e CROSS JOIN LATERAL (
    SELECT s.sequence, s.type, s.message, s.created_at, false AS derived
    FROM tools_executionevent s WHERE s.execution_id = e.id
    UNION ALL
    SELECT 1, 'Started', '', e.started_at, true
    WHERE e.started_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM tools_executionevent s WHERE s.execution_id = e.id)
    UNION ALL
    SELECT 1 + coalesce(
            (SELECT max(s.sequence) FROM tools_executionevent s WHERE s.execution_id = e.id),
            (e.started_at IS NOT NULL)::integer
        ),
        CASE e.status
            WHEN 'Success' THEN 'Completed' WHEN 'Timeout' THEN 'Timeout' ELSE 'Failed'
        END,
        left(e.error_message, 1000), e.completed_at, true
    WHERE e.completed_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM tools_executionevent s
        WHERE s.execution_id = e.id AND s.type IN ('Completed', 'Failed', 'Timeout')
    )
) AS v;
"""
DROP_VIEW = "DROP VIEW tools_event;"
STORE = """
INSERT INTO tools_executionevent (execution_id, sequence, type, message, created_at)
SELECT execution_id, sequence, type, message, created_at FROM tools_event WHERE derived"""
# The lock is of the row's writers: what is stored here has the number that readers saw.
FUNCTIONS = """
CREATE FUNCTION tools_store_events(of_execution uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tools_execution WHERE id = of_execution FOR NO KEY UPDATE;
    __STORE__ AND execution_id = of_execution;
END $$;
CREATE FUNCTION tools_append_event(of_execution uuid, kind varchar, said varchar) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tools_store_events(of_execution);
    INSERT INTO tools_executionevent (execution_id, sequence, type, message)
    SELECT of_execution, coalesce(max(sequence), 0) + 1, kind, said
    FROM tools_executionevent WHERE execution_id = of_execution;
END $$;
""".replace("__STORE__", STORE.strip())
NO_FUNCTIONS = f"""
DROP FUNCTION tools_append_event(uuid, varchar, varchar);
DROP FUNCTION tools_store_events(uuid);
{STORE};
SET CONSTRAINTS ALL IMMEDIATE; -- what follows alters the table
SET CONSTRAINTS ALL DEFERRED;
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0049_executions_by_month")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel("ExecutionEvent"),
                migrations.CreateModel(
                    "StoredEvent",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("sequence", models.PositiveIntegerField()),
                        ("type", models.CharField(choices=_TYPES, max_length=12)),
                        ("message", models.CharField(blank=True, max_length=1000)),
                        ("created_at", models.DateTimeField(db_default=Now())),
                        (
                            "execution",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="stored_events",
                                to="tools.execution",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "tools_executionevent",
                        "ordering": ["sequence"],
                        "constraints": [
                            models.UniqueConstraint(
                                "execution", "sequence", name="event_sequence_once"
                            ),
                            models.UniqueConstraint(
                                "execution",
                                condition=Q(type__in=sorted(TERMINAL)),
                                name="event_terminal_once",
                            ),
                            models.CheckConstraint(
                                condition=Q(type__in=[*EventType]), name="event_type_is_known"
                            ),
                        ],
                    },
                ),
            ]
        ),
        migrations.AlterField(
            "storedevent",
            "execution",
            models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="stored_events",
                to="tools.execution",
            ),
        ),
        migrations.CreateModel(
            "ExecutionEvent",
            [
                (
                    "id",
                    models.CharField(max_length=50, primary_key=True, serialize=False),
                ),
                ("sequence", models.PositiveIntegerField()),
                ("type", models.CharField(choices=_TYPES, max_length=12)),
                ("message", models.CharField(blank=True, max_length=1000)),
                ("created_at", models.DateTimeField()),
                (
                    "ended_at",
                    models.DateTimeField(
                        help_text="Of a derived event: when the execution ended.", null=True
                    ),
                ),
                (
                    "execution",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="events",
                        to="tools.execution",
                    ),
                ),
            ],
            options={
                "db_table": "tools_event",
                "ordering": ["sequence"],
                "managed": False,
                "constraints": [
                    models.UniqueConstraint(
                        fields=["execution", "sequence"], name="event_number_once"
                    )
                ],
            },
        ),
        migrations.RunSQL(CREATE_VIEW, DROP_VIEW),
        migrations.RunSQL(FUNCTIONS, NO_FUNCTIONS),
    ]
