"""What must be unique over the executions of all months in a table of its own, which triggers keep:
an index of a partition knows only its own rows.

A key is taken before its execution is inserted, at the moment when an index of that table would
have refused it: of two requests with one key the later one waits there, and reserves nothing.
"""

from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q
from django.db.models.deletion import DO_NOTHING

_COLUMNS = "execution_id, organization_id, user_id, idempotency_key, parent_id, place, retry_of"
_VALUES = """{row}.id, {row}.organization_id, {row}.user_id, {row}.idempotency_key,
        {row}.parent_id, {row}.place, {row}.retry_of"""
_ANY = "num_nonnulls({row}.idempotency_key, {row}.parent_id, {row}.retry_of) > 0"
_KEYS = "({row}.idempotency_key, {row}.parent_id, {row}.place, {row}.retry_of)"
KEPT = f"""
CREATE FUNCTION tools_keep_execution_keys() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM tools_executionkey WHERE execution_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' AND {_ANY.format(row="NEW")} THEN
        INSERT INTO tools_executionkey ({_COLUMNS})
        VALUES ({_VALUES.format(row="NEW")});
    END IF;
    RETURN CASE WHEN TG_OP = 'INSERT' THEN NEW END;
END $$;
CREATE TRIGGER execution_takes_its_keys
    BEFORE INSERT ON tools_execution
    FOR EACH ROW WHEN ({_ANY.format(row="NEW")})
    EXECUTE FUNCTION tools_keep_execution_keys();
CREATE TRIGGER execution_changes_its_keys
    AFTER UPDATE ON tools_execution
    FOR EACH ROW WHEN ({_KEYS.format(row="OLD")} IS DISTINCT FROM {_KEYS.format(row="NEW")})
    EXECUTE FUNCTION tools_keep_execution_keys();
CREATE TRIGGER execution_leaves_its_keys
    AFTER DELETE ON tools_execution
    FOR EACH ROW WHEN ({_ANY.format(row="OLD")})
    EXECUTE FUNCTION tools_keep_execution_keys();

INSERT INTO tools_executionkey ({_COLUMNS})
SELECT {_VALUES.format(row="e")} FROM tools_execution e WHERE {_ANY.format(row="e")};
"""  # noqa: S608
NOT_KEPT = """
DROP TRIGGER execution_leaves_its_keys ON tools_execution;
DROP TRIGGER execution_changes_its_keys ON tools_execution;
DROP TRIGGER execution_takes_its_keys ON tools_execution;
DROP FUNCTION tools_keep_execution_keys();
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


_KEYS_ONCE = (
    models.UniqueConstraint(
        "organization",
        "user",
        "idempotency_key",
        name="execution_idempotency_key_once",
        condition=Q(idempotency_key__isnull=False),
    ),
    models.UniqueConstraint(
        "parent", "place", name="execution_once_per_place", condition=Q(parent__isnull=False)
    ),
    models.UniqueConstraint(
        "retry_of", name="execution_retried_once", condition=Q(retry_of__isnull=False)
    ),
)


class Migration(migrations.Migration):
    dependencies = [("tools", "0046_updates_in_place")]

    operations = [
        *(migrations.RemoveConstraint("execution", one.name) for one in _KEYS_ONCE),
        migrations.RemoveIndex("execution", "execution_with_key"),
        migrations.AddIndex(
            "execution",
            models.Index(
                fields=["parent", "place"],
                name="execution_of_parent",
                condition=Q(parent__isnull=False),
            ),
        ),
        migrations.CreateModel(
            name="ExecutionKey",
            fields=[
                (
                    "execution",
                    models.OneToOneField(
                        "tools.execution",
                        primary_key=True,
                        serialize=False,
                        on_delete=DO_NOTHING,
                        db_constraint=False,
                        related_name="keys",
                    ),
                ),
                ("organization", _mirrored("tools.organization")),
                ("user", _mirrored(settings.AUTH_USER_MODEL)),
                ("idempotency_key", models.CharField(max_length=255, null=True)),
                ("parent", _mirrored("tools.execution", null=True)),
                ("place", models.CharField(max_length=200)),
                ("retry_of", models.UUIDField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["execution"],
                        name="execution_key_by_age",
                        condition=Q(idempotency_key__isnull=False),
                    ),
                ],
                "constraints": [*_KEYS_ONCE],
            },
        ),
        migrations.RunSQL(KEPT, NOT_KEPT),
    ]
