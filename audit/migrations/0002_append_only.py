"""Records are written once: the database itself refuses to change, delete or truncate them."""

from django.db import migrations

REFUSE = """
CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is evidence: rows are never changed or removed', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_rows_never_change
    BEFORE UPDATE OR DELETE ON audit_auditrecord
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_is_never_truncated
    BEFORE TRUNCATE ON audit_auditrecord
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
"""
ALLOW = """
DROP TRIGGER audit_is_never_truncated ON audit_auditrecord;
DROP TRIGGER audit_rows_never_change ON audit_auditrecord;
DROP FUNCTION audit_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]
    operations = [migrations.RunSQL(REFUSE, ALLOW)]
