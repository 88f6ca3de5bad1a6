"""The database lets a checkpoint go when it is a day old and the next one of its log, which covers
it, was signed within the same hour: so the last of each hour stays, and all of the last day.

One that says that a break was accepted stays, and one with two signatures, which vouches for a new
key. Like the other refusals this keeps accidents out and proves nothing: `audit_verify` does.
"""

from django.db import migrations

THIN = """
CREATE FUNCTION audit_checkpoint_hour(note text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(split_part(note, E'\\n', 4), 6, 13)
$$;
CREATE FUNCTION audit_checkpoint_is_plain(note text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(note, E'\\n', 5) = '' AND split_part(note, E'\\n', 7) = ''
$$;
CREATE FUNCTION audit_checkpoint_only_thins() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    following text;
    newest timestamptz;
BEGIN
    SELECT note INTO following FROM audit_checkpoint
    WHERE log_id = OLD.log_id AND (size, id) > (OLD.size, OLD.id) ORDER BY size, id LIMIT 1;
    SELECT created_at INTO newest FROM audit_checkpoint
    WHERE log_id = OLD.log_id ORDER BY size DESC, id DESC LIMIT 1;
    IF TG_OP = 'DELETE' AND audit_checkpoint_is_plain(OLD.note)
        AND audit_checkpoint_hour(following) = audit_checkpoint_hour(OLD.note)
        AND OLD.created_at < least(newest, clock_timestamp()) - interval '1 day' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is evidence: only what a later one of its hour covers may go', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
DROP TRIGGER audit_rows_never_change ON audit_checkpoint;
CREATE TRIGGER audit_checkpoints_only_thin BEFORE UPDATE OR DELETE ON audit_checkpoint
    FOR EACH ROW EXECUTE FUNCTION audit_checkpoint_only_thins();
ALTER TABLE audit_checkpoint ENABLE ALWAYS TRIGGER audit_checkpoints_only_thin;
GRANT DELETE ON audit_checkpoint TO CURRENT_USER;
"""
KEEP_ALL = """
REVOKE DELETE ON audit_checkpoint FROM CURRENT_USER;
DROP TRIGGER audit_checkpoints_only_thin ON audit_checkpoint;
CREATE TRIGGER audit_rows_never_change BEFORE UPDATE OR DELETE ON audit_checkpoint
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
ALTER TABLE audit_checkpoint ENABLE ALWAYS TRIGGER audit_rows_never_change;
DROP FUNCTION audit_checkpoint_only_thins();
DROP FUNCTION audit_checkpoint_is_plain(text);
DROP FUNCTION audit_checkpoint_hour(text);
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0010_exports")]
    operations = [migrations.RunSQL(THIN, KEEP_ALL)]
