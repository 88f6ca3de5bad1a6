"""Records and payloads are partitioned by month. What there is stays as it is, as one partition."""

from django.db import migrations

from audit.partitions import join_partitions_sql, partition_table_sql


def partition(table: str, key: str) -> migrations.RunSQL:
    return migrations.RunSQL(partition_table_sql(table, key), join_partitions_sql(table))


class Migration(migrations.Migration):
    dependencies = [("audit", "0011_thinned_checkpoints")]
    operations = [
        partition("audit_auditrecord", "id"),
        partition("audit_auditpayload", "record_id"),
    ]
