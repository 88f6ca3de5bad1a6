"""The database itself refuses to change or remove evidence.

A record may leave once the segment it is sealed in was written to a file; a payload may be erased;
a log only ever grows. Its owner could lift all this again: it prevents accidents and injected
statements, and proves nothing. The sealed log does that.
"""

from django.db import migrations

REFUSE = """
DROP TRIGGER audit_rows_never_change ON audit_auditrecord;
CREATE TRIGGER audit_rows_never_change
    BEFORE UPDATE ON audit_auditrecord
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();

CREATE FUNCTION audit_refuse_unless_exported() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM audit_auditleaf l JOIN audit_auditsegment s ON s.log_id = l.log_id
        WHERE l.record_id = OLD.id AND l.index >= s.first AND l.index < s."end"
            AND s.removed_at IS NULL
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is evidence: rows are never changed or removed', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_rows_leave_when_exported
    BEFORE DELETE ON audit_auditrecord
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_unless_exported();

CREATE FUNCTION audit_only_erase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.sealed IS NULL THEN
            RETURN OLD;
        END IF;
    ELSIF NEW.record_id = OLD.record_id AND NEW.organization = OLD.organization
        AND OLD.sealed IS NOT NULL AND NEW.sealed IS NULL THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is evidence: a payload is erased or stays as it is', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_payloads_are_only_erased
    BEFORE UPDATE OR DELETE ON audit_auditpayload
    FOR EACH ROW EXECUTE FUNCTION audit_only_erase();

CREATE FUNCTION audit_only_grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.name = OLD.name AND NEW.size >= OLD.size THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is evidence: a log only grows', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_logs_only_grow
    BEFORE UPDATE OR DELETE ON audit_auditlog
    FOR EACH ROW EXECUTE FUNCTION audit_only_grow();

CREATE FUNCTION audit_segment_only_empties() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.removed_at IS NULL AND NEW.removed_at IS NOT NULL
        AND (NEW.log_id, NEW.first, NEW."end", NEW.file, NEW.sha256, NEW.note)
            = (OLD.log_id, OLD.first, OLD."end", OLD.file, OLD.sha256, OLD.note) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is evidence: rows are never changed or removed', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_segments_only_empty
    BEFORE UPDATE OR DELETE ON audit_auditsegment
    FOR EACH ROW EXECUTE FUNCTION audit_segment_only_empties();
"""
ALLOW = """
DROP TRIGGER audit_segments_only_empty ON audit_auditsegment;
DROP FUNCTION audit_segment_only_empties();
DROP TRIGGER audit_logs_only_grow ON audit_auditlog;
DROP FUNCTION audit_only_grow();
DROP TRIGGER audit_payloads_are_only_erased ON audit_auditpayload;
DROP FUNCTION audit_only_erase();
DROP TRIGGER audit_rows_leave_when_exported ON audit_auditrecord;
DROP FUNCTION audit_refuse_unless_exported();
DROP TRIGGER audit_rows_never_change ON audit_auditrecord;
CREATE TRIGGER audit_rows_never_change
    BEFORE UPDATE OR DELETE ON audit_auditrecord
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
"""
ADDED_ONLY = ("audit_auditleaf", "audit_auditnode", "audit_checkpoint")
NEVER_EMPTIED = (
    "audit_auditpayload",
    "audit_auditlog",
    "audit_auditsegment",
    "audit_checkpointkey",
    *ADDED_ONLY,
)
NEVER_CHANGED = "".join(
    f"""
CREATE TRIGGER audit_rows_never_change BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
REVOKE UPDATE, DELETE ON {table} FROM CURRENT_USER;
"""
    for table in ADDED_ONLY
)
NEVER_TRUNCATED = "".join(
    f"""
CREATE TRIGGER audit_is_never_truncated BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
REVOKE TRUNCATE ON {table} FROM CURRENT_USER;
"""
    for table in NEVER_EMPTIED
)
RECORDS = "REVOKE UPDATE, TRUNCATE ON audit_auditrecord FROM CURRENT_USER;"
CHANGED = "".join(
    f"""
GRANT UPDATE, DELETE ON {table} TO CURRENT_USER;
DROP TRIGGER audit_rows_never_change ON {table};
"""
    for table in ADDED_ONLY
)
TRUNCATED = "".join(
    f"""
GRANT TRUNCATE ON {table} TO CURRENT_USER;
DROP TRIGGER audit_is_never_truncated ON {table};
"""
    for table in NEVER_EMPTIED
)
GRANTED = "GRANT UPDATE, TRUNCATE ON audit_auditrecord TO CURRENT_USER;"


class Migration(migrations.Migration):
    dependencies = [("audit", "0004_evidence")]
    operations = [
        migrations.RunSQL(REFUSE, ALLOW),
        migrations.RunSQL(NEVER_CHANGED, CHANGED),
        migrations.RunSQL(NEVER_TRUNCATED, TRUNCATED),
        migrations.RunSQL(RECORDS, GRANTED),
    ]
