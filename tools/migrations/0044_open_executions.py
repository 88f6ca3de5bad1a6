"""Open executions in a table of their own, which triggers keep: the row of an execution is updated
in place (HOT) only where no index has a key or a condition that changes with its status.

A change of an open row deletes and inserts it: each index finds it by its status, so that an update
would write as much. The functions read by index whatever the statistics of a table say that is
often empty: their plans are kept by each connection.
"""

from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q
from django.db.models.deletion import DO_NOTHING

from tools.definitions.results import Status

_COLUMNS = """execution_id, organization_id, user_id, session_id, parent_id, tool_name, status,
        queued_at, cache_key, composite, parked_below"""
_VALUES = """{row}.id, {row}.organization_id, {row}.user_id,
        CASE WHEN {row}.composite THEN NULL ELSE {row}.session_id END, {row}.parent_id,
        {row}.tool_name, {row}.status, {row}.queued_at, {row}.cache_key, {row}.composite,
        {row}.parked_below"""
_KEPT = """({row}.organization_id, {row}.user_id, {row}.session_id, {row}.parent_id,
        {row}.tool_name, {row}.status, {row}.queued_at, {row}.cache_key, {row}.composite,
        {row}.parked_below)"""
_OPEN = "('Pending', 'Running', 'RequiresConfirmation')"
KEPT = f"""
ALTER TABLE tools_openexecution SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000,
    vacuum_truncate = off
);

CREATE FUNCTION tools_keep_open_executions() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM tools_openexecution WHERE execution_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.status IN {_OPEN} THEN
        INSERT INTO tools_openexecution ({_COLUMNS})
        VALUES ({_VALUES.format(row="NEW")});
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER execution_joins_the_open
    AFTER INSERT ON tools_execution
    FOR EACH ROW WHEN (NEW.status IN {_OPEN})
    EXECUTE FUNCTION tools_keep_open_executions();
CREATE TRIGGER execution_moves_among_the_open
    AFTER UPDATE ON tools_execution
    FOR EACH ROW WHEN ({_KEPT.format(row="OLD")} IS DISTINCT FROM {_KEPT.format(row="NEW")})
    EXECUTE FUNCTION tools_keep_open_executions();
CREATE TRIGGER execution_leaves_the_open
    AFTER DELETE ON tools_execution
    FOR EACH ROW WHEN (OLD.status IN {_OPEN})
    EXECUTE FUNCTION tools_keep_open_executions();

INSERT INTO tools_openexecution ({_COLUMNS})
SELECT {_VALUES.format(row="e")} FROM tools_execution e WHERE e.status IN {_OPEN};
"""  # noqa: S608
NOT_KEPT = """
DROP TRIGGER execution_leaves_the_open ON tools_execution;
DROP TRIGGER execution_moves_among_the_open ON tools_execution;
DROP TRIGGER execution_joins_the_open ON tools_execution;
DROP FUNCTION tools_keep_open_executions();
"""


def _mirrored(model: str, **options: Any) -> Any:
    return models.ForeignKey(
        model,
        on_delete=DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
        **options,
    )


class Migration(migrations.Migration):
    dependencies = [("tools", "0043_begun_as_accepted")]

    operations = [
        migrations.RemoveConstraint("execution", "execution_one_open_per_session"),
        migrations.CreateModel(
            name="OpenExecution",
            fields=[
                (
                    "execution",
                    models.OneToOneField(
                        "tools.execution",
                        primary_key=True,
                        serialize=False,
                        on_delete=DO_NOTHING,
                        db_constraint=False,
                        related_name="open",
                    ),
                ),
                ("organization", _mirrored("tools.organization")),
                ("user", _mirrored(settings.AUTH_USER_MODEL)),
                (
                    "session",
                    _mirrored(
                        "tools.session",
                        null=True,
                        help_text="Empty for a composite call, which leaves it to its calls.",
                    ),
                ),
                ("parent", _mirrored("tools.execution", null=True)),
                ("tool_name", models.CharField(max_length=128)),
                ("status", models.CharField(max_length=20)),
                ("queued_at", models.DateTimeField()),
                ("cache_key", models.CharField(max_length=64)),
                ("composite", models.BooleanField()),
                ("parked_below", models.PositiveSmallIntegerField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["organization", "queued_at"],
                        name="open_execution_queued",
                        condition=Q(status=Status.PENDING),
                    ),
                    models.Index(
                        fields=["organization", "tool_name"],
                        name="open_execution_running",
                        condition=Q(status=Status.RUNNING),
                    ),
                    models.Index(
                        fields=["user"],
                        name="open_execution_held",
                        condition=Q(status=Status.REQUIRES_CONFIRMATION),
                    ),
                    models.Index(
                        fields=["parent"],
                        name="open_execution_of_parent",
                        condition=Q(parent__isnull=False),
                    ),
                    models.Index(
                        fields=["cache_key"],
                        name="open_execution_cacheable",
                        condition=~Q(cache_key=""),
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        "session",
                        name="execution_one_open_per_session",
                        condition=Q(session__isnull=False),
                    ),
                ],
            },
        ),
        migrations.RunSQL(KEPT, NOT_KEPT),
    ]
