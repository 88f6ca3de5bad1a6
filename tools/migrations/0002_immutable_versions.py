"""A tool version is what was signed: the database refuses to change or delete it.

An execution that is over stays over: no update may change its status again.
"""

from django.db import migrations

REFUSE = """
CREATE FUNCTION tools_refuse_version_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a tool version is never changed or removed'
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER tool_version_never_changes
    BEFORE UPDATE OR DELETE ON tools_toolversion
    FOR EACH ROW EXECUTE FUNCTION tools_refuse_version_change();

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
ALLOW = """
DROP TRIGGER execution_ends_once ON tools_execution;
DROP FUNCTION tools_refuse_second_end();
DROP TRIGGER tool_version_never_changes ON tools_toolversion;
DROP FUNCTION tools_refuse_version_change();
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0001_initial")]
    operations = [migrations.RunSQL(REFUSE, ALLOW)]
