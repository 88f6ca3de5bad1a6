"""A call that only goes out may begin as it is accepted, with the first fence."""

from django.db import migrations

BEGUN = """
DROP TRIGGER execution_begins_unclaimed ON tools_execution;
CREATE TRIGGER execution_begins_unclaimed
    BEFORE INSERT ON tools_execution
    FOR EACH ROW WHEN (NEW.fence <> CASE NEW.status WHEN 'Running' THEN 1 ELSE 0 END)
    EXECUTE FUNCTION tools_check_beginning();
"""
UNCLAIMED = """
DROP TRIGGER execution_begins_unclaimed ON tools_execution;
CREATE TRIGGER execution_begins_unclaimed
    BEFORE INSERT ON tools_execution
    FOR EACH ROW WHEN (NEW.status = 'Running' OR NEW.fence <> 0)
    EXECUTE FUNCTION tools_check_beginning();
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0042_warnings_of_answers")]

    operations = [migrations.RunSQL(BEGUN, UNCLAIMED)]
