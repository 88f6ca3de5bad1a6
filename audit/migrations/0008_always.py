"""Nothing in a session switches the refusals off; keys are evidence like what they sign and seal.

A trigger is usually silent in a session that says it is a replica's. These are not: only who owns
the tables can still disable them, one by one.
"""

from django.db import migrations, models

REFUSE = """
CREATE FUNCTION audit_key_only_retires() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.retired_at IS NOT NULL
        AND (NEW.key_id, NEW.name, NEW.public, NEW.created_at)
            = (OLD.key_id, OLD.name, OLD.public, OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is evidence: a key is retired or stays as it is', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_keys_only_retire
    BEFORE UPDATE OR DELETE ON audit_checkpointkey
    FOR EACH ROW EXECUTE FUNCTION audit_key_only_retires();

CREATE TRIGGER audit_rows_never_change
    BEFORE UPDATE ON audit_auditkey
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_is_never_truncated
    BEFORE TRUNCATE ON audit_auditkey
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
REVOKE UPDATE, TRUNCATE ON audit_auditkey FROM CURRENT_USER;

CREATE OR REPLACE FUNCTION audit_only_grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.name = OLD.name AND NEW.size >= OLD.size
        AND NEW.anchored >= OLD.anchored THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is evidence: a log only grows', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
"""
ALLOW = """
CREATE OR REPLACE FUNCTION audit_only_grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.name = OLD.name AND NEW.size >= OLD.size THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is evidence: a log only grows', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
GRANT UPDATE, TRUNCATE ON audit_auditkey TO CURRENT_USER;
DROP TRIGGER audit_is_never_truncated ON audit_auditkey;
DROP TRIGGER audit_rows_never_change ON audit_auditkey;
DROP TRIGGER audit_keys_only_retire ON audit_checkpointkey;
DROP FUNCTION audit_key_only_retires();
"""
EVIDENCE = """
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT tgrelid::regclass AS place, tgname FROM pg_trigger
        WHERE NOT tgisinternal AND tgname LIKE 'audit\\_%' AND tgrelid IN (
            'audit_auditrecord'::regclass, 'audit_auditpayload'::regclass,
            'audit_auditkey'::regclass, 'audit_auditlog'::regclass, 'audit_auditleaf'::regclass,
            'audit_auditnode'::regclass, 'audit_checkpoint'::regclass,
            'audit_checkpointkey'::regclass, 'audit_auditsegment'::regclass
        )
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE {how} TRIGGER %I', one.place, one.tgname);
    END LOOP;
END $$;
"""
ALWAYS = EVIDENCE.replace("{how}", "ALWAYS")
ORDINARY = EVIDENCE.replace(" {how}", "")


class Migration(migrations.Migration):
    dependencies = [("audit", "0007_search")]
    operations = [
        migrations.AddField(
            model_name="auditlog",
            name="anchored",
            field=models.BooleanField(
                db_default=False,
                help_text="Whether something that was published of it was seen since.",
            ),
        ),
        migrations.RunSQL(REFUSE, ALLOW),
        migrations.RunSQL(ALWAYS, ORDINARY),
    ]
