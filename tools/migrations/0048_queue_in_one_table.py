"""What the queue asks of an open execution is in its open row: its tool's version, and of a parked
one until when it waits and whether it was cancelled. Executions are partitioned by month, and a
statement that joins them is planned for each month.
"""

from importlib import import_module

from django.db import migrations, models
from django.db.models.deletion import DO_NOTHING

_OPEN = import_module("tools.migrations.0044_open_executions")
_CANCEL_UNSEEN = """coalesce({row}.parked_below IS NOT NULL
        AND {row}.cancel_requested_at IS NOT NULL
        AND NOT jsonb_exists({row}.memory, 'ending'), false)"""
_COLUMNS = f"{_OPEN._COLUMNS}, tool_version_id, wake_at, cancel_unseen"
_VALUES = f"""{_OPEN._VALUES}, {{row}}.tool_version_id, {{row}}.wake_at,
        {_CANCEL_UNSEEN}"""
_KEPT = f"({_OPEN._KEPT}, {{row}}.tool_version_id, {{row}}.wake_at, {_CANCEL_UNSEEN})"
_KEEP = """
CREATE OR REPLACE FUNCTION tools_keep_open_executions() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM tools_openexecution WHERE execution_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.status IN {open} THEN
        INSERT INTO tools_openexecution ({columns})
        VALUES ({values});
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER execution_moves_among_the_open ON tools_execution;
CREATE TRIGGER execution_moves_among_the_open
    AFTER UPDATE ON tools_execution
    FOR EACH ROW WHEN ({before} IS DISTINCT FROM {after})
    EXECUTE FUNCTION tools_keep_open_executions();
"""


def _keep(columns: str, values: str, kept: str) -> str:
    return _KEEP.format(
        open=_OPEN._OPEN,
        columns=columns,
        values=values.format(row="NEW"),
        before=kept.format(row="OLD"),
        after=kept.format(row="NEW"),
    )


WIDER = f"""
ALTER TABLE tools_openexecution ADD COLUMN tool_version_id uuid, ADD COLUMN wake_at timestamptz,
    ADD COLUMN cancel_unseen boolean;
UPDATE tools_openexecution o SET tool_version_id = e.tool_version_id, wake_at = e.wake_at,
    cancel_unseen = {_CANCEL_UNSEEN.format(row="e")}
FROM tools_execution e WHERE e.id = o.execution_id;
ALTER TABLE tools_openexecution ALTER COLUMN tool_version_id SET NOT NULL,
    ALTER COLUMN cancel_unseen SET NOT NULL;
{_keep(_COLUMNS, _VALUES, _KEPT)}
"""  # noqa: S608
NARROWER = f"""
{_keep(_OPEN._COLUMNS, _OPEN._VALUES, _OPEN._KEPT)}
ALTER TABLE tools_openexecution DROP COLUMN tool_version_id, DROP COLUMN wake_at,
    DROP COLUMN cancel_unseen;
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0047_execution_keys")]

    operations = [
        migrations.RunSQL(
            WIDER,
            NARROWER,
            state_operations=[
                migrations.AddField(
                    "openexecution",
                    "tool_version",
                    models.ForeignKey(
                        "tools.toolversion",
                        on_delete=DO_NOTHING,
                        db_constraint=False,
                        db_index=False,
                        related_name="+",
                    ),
                    preserve_default=False,
                ),
                migrations.AddField("openexecution", "wake_at", models.DateTimeField(null=True)),
                migrations.AddField(
                    "openexecution",
                    "cancel_unseen",
                    models.BooleanField(
                        help_text="It was cancelled while it was parked, and no turn has seen that."
                    ),
                    preserve_default=False,
                ),
            ],
        ),
    ]
