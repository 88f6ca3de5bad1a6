"""Functions with which one statement accepts a call: a refusal undoes the whole statement, and what
is counted under a lock is read after the lock was taken (each query of a volatile function sees
what was committed before it)."""

from django.db import migrations

FUNCTIONS = """
CREATE FUNCTION tools_refuse(what text, which text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', which USING ERRCODE = 'TC001', DETAIL = what;
END $$;

CREATE FUNCTION tools_has_rate_hits(
    lock_key text, of_account uuid, of_organization uuid, of_tool varchar
)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(lock_key, 0));
    RETURN EXISTS (
        SELECT FROM tools_ratehit
        WHERE user_id = of_account AND tool_name = of_tool AND organization_id = of_organization
            AND at > statement_timestamp() - interval '60 s'
    );
END $$;

CREATE FUNCTION tools_count_rate(
    lock_key text, of_account uuid, of_organization uuid, of_tool varchar, most bigint,
    OUT used bigint, OUT age_s float8
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(lock_key, 0));
    WITH passed AS (
        SELECT at FROM tools_ratehit
        WHERE user_id = of_account AND tool_name = of_tool AND organization_id = of_organization
            AND at > clock_timestamp() - interval '60 s'
        UNION ALL
        SELECT created_at FROM tools_execution
        WHERE user_id = of_account AND tool_name = of_tool AND organization_id = of_organization
            AND rated_by = 'redis' AND NOT rated_by = ''
            AND created_at > clock_timestamp() - interval '60 s'
    ), number AS (SELECT count(*) AS passes FROM passed)
    SELECT passes, extract(epoch FROM clock_timestamp() - (
        SELECT at FROM passed ORDER BY at OFFSET greatest(passes - most, 0) LIMIT 1
    ))::float8 INTO used, age_s FROM number;
    IF used < most THEN
        INSERT INTO tools_ratehit (user_id, organization_id, tool_name, at)
        VALUES (of_account, of_organization, of_tool, clock_timestamp());
    END IF;
END $$;
"""
GONE = """
DROP FUNCTION tools_count_rate(text, uuid, uuid, varchar, bigint);
DROP FUNCTION tools_has_rate_hits(text, uuid, uuid, varchar);
DROP FUNCTION tools_refuse(text, text);
"""


class Migration(migrations.Migration):
    dependencies = [("tools", "0044_open_executions")]

    operations = [migrations.RunSQL(FUNCTIONS, GONE)]
