"""Executions are partitioned by month. What there is stays as it is, as one partition.

The count of a minute's calls looks into no earlier months: a day is for clocks that differ.
"""

from importlib import import_module

from django.db import migrations

from audit.partitions import join_partitions_sql, partition_table_sql

TABLE = "tools_execution"
_FUNCTIONS: str = import_module("tools.migrations.0045_statement_functions").FUNCTIONS
_COUNT = _FUNCTIONS[_FUNCTIONS.index("CREATE FUNCTION tools_count_rate") :]
_COUNT_BEFORE = _COUNT.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
_COUNT_AFTER = _COUNT_BEFORE.replace(
    "BEGIN\n",
    """DECLARE
    since uuid := (lpad(to_hex((extract(epoch FROM clock_timestamp() - interval '1 day')
        * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
BEGIN
""",
).replace("AND rated_by = 'redis'", "AND id > since AND rated_by = 'redis'")


class Migration(migrations.Migration):
    dependencies = [("tools", "0048_queue_in_one_table")]
    operations = [
        migrations.RunSQL(partition_table_sql(TABLE, "id"), join_partitions_sql(TABLE)),
        migrations.RunSQL(_COUNT_AFTER, _COUNT_BEFORE),
    ]
