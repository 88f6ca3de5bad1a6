"""What a person may resolve is wider, and what they said is never rewritten.

Also a call that was cancelled, timed out or set aside may have had its effect (`effect_possible`).
On a resolved row neither the word nor who said it, when and why can change any more.
"""

from django.db import migrations, models

_MOVE = """
CREATE OR REPLACE FUNCTION tools_check_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    over constant text[] := ARRAY['Success', 'Failed', 'Timeout', 'Cancelled', 'SandboxError',
        'PermissionDenied', 'ValidationError'];
    was tools_execution%ROWTYPE;
    legal boolean;
    claims integer;
BEGIN
    IF OLD.status = ANY (over) THEN
        was := NEW;
        was.idempotency_key := OLD.idempotency_key;
        was.resolved_as := OLD.resolved_as;
        was.resolved_at := OLD.resolved_at;
        was.resolved_by := OLD.resolved_by;
        was.resolution_reason := OLD.resolution_reason;
        IF was IS DISTINCT FROM OLD
            OR (NEW.idempotency_key IS DISTINCT FROM OLD.idempotency_key
                AND NEW.idempotency_key IS NOT NULL)
__WORD__            RAISE EXCEPTION 'execution % is over: it ended as %', OLD.id, OLD.status
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    legal := NEW.status = OLD.status OR CASE OLD.status
        WHEN 'RequiresConfirmation' THEN
            NEW.status IN ('Pending', 'Cancelled', 'PermissionDenied')
        WHEN 'Pending' THEN
            NEW.status IN ('Running', 'Cancelled', 'Failed', 'PermissionDenied')
        WHEN 'Running' THEN
            NEW.status IN ('Pending', 'Success', 'Failed', 'Timeout', 'Cancelled', 'SandboxError',
                'PermissionDenied')
        ELSE false
    END;
    IF NOT legal THEN
        RAISE EXCEPTION 'execution % may not come from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'restrict_violation';
    END IF;
    claims := (OLD.status = 'Pending' AND NEW.status = 'Running')::int;
    IF NEW.fence <> OLD.fence + claims THEN
        RAISE EXCEPTION 'execution %: a fence counts claims, from % to %', OLD.id, OLD.fence,
            NEW.fence USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
"""
_ONLY_THE_WORD = """\
            OR (OLD.resolved_as <> '' AND NEW.resolved_as IS DISTINCT FROM OLD.resolved_as) THEN
"""
_ALL_OF_IT = """\
            OR (OLD.resolved_as <> '' AND
                (NEW.resolved_as, NEW.resolved_at, NEW.resolved_by, NEW.resolution_reason)
                IS DISTINCT FROM
                (OLD.resolved_as, OLD.resolved_at, OLD.resolved_by, OLD.resolution_reason)) THEN
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0009_keyed_executions")]
    operations = [
        migrations.RunSQL(
            _MOVE.replace("__WORD__", _ALL_OF_IT), _MOVE.replace("__WORD__", _ONLY_THE_WORD)
        ),
        migrations.RemoveConstraint(
            model_name="execution", name="execution_resolved_where_unknown"
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("resolved_as", ""), ("resolved_at__isnull", True), ("resolved_by", "")
                    ),
                    models.Q(
                        ("resolved_as__in", ["happened", "did_not_happen"]),
                        ("resolved_at__isnull", False),
                        models.Q(
                            ("error_code", "OUTCOME_UNKNOWN"),
                            ("error_details__contains", {"effect_possible": True}),
                            _connector="OR",
                        ),
                        models.Q(("resolved_by", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="execution_resolved_where_unknown",
            ),
        ),
    ]
