"""Which status an execution may come into from which, who may move it, and that it ends once.

The picture is in docs/architecture.md. A worker's claim counts the fence up by one; nothing counts
it down, and nobody can run what was not claimed. What is over keeps its end: a person may say what
became of an outcome that was not known, and its idempotency key may be let go.
"""

from django.db import migrations

REFUSE = """
DROP TRIGGER execution_ends_once ON tools_execution;
DROP FUNCTION tools_refuse_second_end();

CREATE FUNCTION tools_check_move() RETURNS trigger LANGUAGE plpgsql AS $$
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
            OR (OLD.resolved_as <> '' AND NEW.resolved_as IS DISTINCT FROM OLD.resolved_as) THEN
            RAISE EXCEPTION 'execution % is over: it ended as %', OLD.id, OLD.status
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
CREATE TRIGGER execution_moves_legally
    BEFORE UPDATE ON tools_execution
    FOR EACH ROW EXECUTE FUNCTION tools_check_move();

CREATE FUNCTION tools_check_beginning() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'execution % cannot begin as %', NEW.id, NEW.status
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER execution_begins_unclaimed
    BEFORE INSERT ON tools_execution
    FOR EACH ROW WHEN (NEW.status = 'Running' OR NEW.fence <> 0)
    EXECUTE FUNCTION tools_check_beginning();
"""
ALLOW = """
DROP TRIGGER execution_begins_unclaimed ON tools_execution;
DROP FUNCTION tools_check_beginning();
DROP TRIGGER execution_moves_legally ON tools_execution;
DROP FUNCTION tools_check_move();
CREATE FUNCTION tools_refuse_second_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'execution % is over: it ended as %', OLD.id, OLD.status
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER execution_ends_once
    BEFORE UPDATE ON tools_execution
    FOR EACH ROW WHEN (OLD.completed_at IS NOT NULL)
    EXECUTE FUNCTION tools_refuse_second_end();
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0007_durability")]
    operations = [migrations.RunSQL(REFUSE, ALLOW)]
