"""Every filter and every word of a record are in one inverted index, so that any of them together
is found by intersecting lists, however rare or common each is.

Only what PostgreSQL brings: no extension. A word is a run of letters and digits, in lower case; its
first forty characters count, which bounds what an entry of the index may hold. A line break inside
a text is two characters in JSON, and no part of a word.

What is not merged into the index yet is kept small: the call whose record makes it full merges it.
"""

from django.db import migrations

TERMS = r"""
CREATE FUNCTION audit_words(said text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_split_to_array(
    regexp_replace(
        lower(replace(said, '\\', ' ')), '([[:alnum:]]{40})[[:alnum:]]+', '\1', 'g'
    ),
    '(\\[bfnrt]|[^[:alnum:]])+'
);
CREATE FUNCTION audit_terms(
    organization text, code text, outcome text, reason text, actor text, subject text,
    request_id text, details json
) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN audit_words(
    code || ' ' || actor || ' ' || subject || ' ' || reason || ' ' || details::text
) || ARRAY[
    'in:' || organization, 'code:' || code, 'family:' || split_part(code, '.', 1),
    'outcome:' || outcome, 'reason:' || reason, 'actor:' || actor, 'subject:' || subject,
    'request:' || request_id
];
CREATE INDEX audit_by_term ON audit_auditrecord USING gin (
    audit_terms(organization, code, outcome, reason, actor, subject, request_id, details)
) WITH (gin_pending_list_limit = 512);
"""
NO_TERMS = """
DROP INDEX audit_by_term;
DROP FUNCTION audit_terms(text, text, text, text, text, text, text, json);
DROP FUNCTION audit_words(text);
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0006_alert_rules")]
    operations = [migrations.RunSQL(TERMS, NO_TERMS)]
