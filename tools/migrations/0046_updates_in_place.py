"""The row of an execution is updated in place (HOT): no index has a key or a condition with a
column that changes when an ordinary call is claimed or succeeds.

`unsuccessful` has the status of executions that ended otherwise, and of these alone. The database
computes it after `tools_check_move` has seen the row, which therefore leaves it out.
"""

from importlib import import_module

from django.db import migrations, models
from django.db.models import Case, F, Q, When
from django.db.models.deletion import PROTECT

from tools.definitions.results import FAILURES, FINAL, Status

_EXPIRING = import_module("tools.migrations.0026_expiring_parameters")
_BEFORE: str = _EXPIRING._MOVE.replace("__CALL__", _EXPIRING._OF_A_CALL)
_KEY = "        was.idempotency_key := OLD.idempotency_key;\n"
_AFTER = _BEFORE.replace(_KEY, f"{_KEY}        was.unsuccessful := OLD.unsuccessful;\n")
KEEPS_DATA = (
    Q(unsuccessful__isnull=True, output_expired_at__isnull=True)
    | Q(parameters_asked__isnull=False)
    | Q(Q(parent__isnull=False), ~Q(parameters={}))
)
_GONE = (
    "execution_open", "execution_queued", "execution_failed", "execution_not_well",
    "execution_queued_here", "execution_running_here", "execution_succeeded", "execution_rated",
    "execution_keyed", "execution_waits_for_another", "execution_keeps_output",
)  # fmt: skip
_NEW = (
    models.Index(
        fields=["user", "tool_version"],
        name="execution_not_unsuccessful",
        condition=Q(unsuccessful__isnull=True),
    ),
    models.Index(
        fields=["organization", "created_at"], name="execution_keeps_data", condition=KEEPS_DATA
    ),
    models.Index(
        fields=["session"], name="execution_of_session", condition=Q(session__isnull=False)
    ),
    models.Index(
        fields=["created_at"],
        name="execution_with_key",
        condition=Q(idempotency_key__isnull=False),
    ),
    models.Index(
        fields=["organization", "-created_at"],
        name="execution_failed",
        condition=Q(unsuccessful__in=sorted(FAILURES)),
    ),
    models.Index(
        fields=["organization", "unsuccessful", "-created_at"],
        name="execution_unsuccessful",
        condition=Q(unsuccessful__isnull=False),
    ),
)


def _without_index(name: str, model: str, **more: object) -> migrations.AlterField:
    key = models.ForeignKey(
        model, on_delete=PROTECT, related_name="executions", db_index=False, **more
    )
    return migrations.AlterField("execution", name, key)


class Migration(migrations.Migration):
    dependencies = [("tools", "0045_statement_functions")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE tools_execution SET (fillfactor = 85)",
            "ALTER TABLE tools_execution RESET (fillfactor)",
        ),
        *(migrations.RemoveIndex("execution", name) for name in _GONE),
        migrations.RemoveConstraint("execution", "execution_idempotency_key_once"),
        migrations.AddField(
            "execution",
            "unsuccessful",
            models.GeneratedField(
                expression=Case(
                    When(status__in=sorted(FINAL - {Status.SUCCESS}), then=F("status"))
                ),
                output_field=models.CharField(max_length=20, null=True),
                db_persist=True,
                help_text="Its status where it ended without success: what indexes may have of it.",
            ),
        ),
        migrations.RunSQL(_AFTER, _BEFORE),
        _without_index("agent", "tools.agent", null=True, blank=True),
        _without_index("session", "tools.session", null=True, blank=True),
        _without_index("tool_version", "tools.toolversion"),
        *(migrations.AddIndex("execution", index) for index in _NEW),
        migrations.AddConstraint(
            "execution",
            models.UniqueConstraint(
                "organization",
                "user",
                "idempotency_key",
                name="execution_idempotency_key_once",
                condition=Q(idempotency_key__isnull=False),
            ),
        ),
    ]
