"""What can be searched is in the inverted index as numbers: a term costs half of what its text
does, and those of one organization are apart from the others'. Columns whose words are there have
no term of their own: they are compared after the index has found their words.

The index over times of all organizations is gone: `audit_recent` answers that, for PostgreSQL skips
from one organization to the next. Payloads without words are in no index of words.
docs/decisions/0028-nothing-written-twice.md
"""

import django.contrib.postgres.indexes
from django.db import migrations
from django.db.models import Q

_COLUMNS = "organization, code, outcome, reason, actor, subject, request_id, details"
HASHES = """
CREATE FUNCTION audit_hashes(organization text, terms text[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY(
    SELECT hashtextextended(term, hashtextextended(organization, 0)) FROM unnest(terms) AS term
);
CREATE FUNCTION audit_indexed(
    organization text, code text, outcome text, reason text, actor text, subject text,
    request_id text, details json
) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN audit_hashes(organization, audit_words(
    code || ' ' || actor || ' ' || subject || ' ' || reason || ' ' || details::text
) || ARRAY['outcome:' || outcome, 'request:' || request_id]);
DROP INDEX audit_by_term;
CREATE INDEX audit_by_term ON audit_auditrecord USING gin (audit_indexed(__COLUMNS__))
    WITH (gin_pending_list_limit = 512);
""".replace("__COLUMNS__", _COLUMNS)
NO_HASHES = f"""
DROP INDEX audit_by_term;
DROP FUNCTION audit_indexed(text, text, text, text, text, text, text, json);
DROP FUNCTION audit_hashes(text, text[]);
CREATE INDEX audit_by_term ON audit_auditrecord USING gin (audit_terms({_COLUMNS}))
    WITH (gin_pending_list_limit = 512);
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0012_partitions")]

    operations = [
        migrations.RunSQL(HASHES, NO_HASHES),
        migrations.RemoveIndex("auditrecord", "audit_by_time"),
        migrations.RemoveIndex("auditpayload", "payload_by_word"),
        migrations.AddIndex(
            "auditpayload",
            django.contrib.postgres.indexes.GinIndex(
                fields=["words"], condition=~Q(words=[]), name="payload_by_word"
            ),
        ),
    ]
