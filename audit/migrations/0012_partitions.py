"""Records and payloads are partitioned by month. What there is stays as it is, as one partition."""

from django.db import migrations

from audit.partitions import partition_table_sql


class Migration(migrations.Migration):
    dependencies = [("audit", "0011_thinned_checkpoints")]
    operations = [
        migrations.RunSQL(partition_table_sql("audit_auditrecord", "id")),
        migrations.RunSQL(partition_table_sql("audit_auditpayload", "record_id")),
    ]
