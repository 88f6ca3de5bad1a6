"""Tables that are partitioned by month, in a schema of their own."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from uuid_utils.compat import uuid7

from audit import metrics, partitions
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.partitions import Month, PartitionBusy, first_id

BY = Actor("person", "p", "here")
TABLE = "audit_auditrecord"
MARCH = datetime(2020, 3, 14, tzinfo=UTC)
# Rows of any kind, with all that is to be carried over.
PLAIN = """
CREATE TABLE owner (id int PRIMARY KEY);
INSERT INTO owner VALUES (1);
CREATE TABLE thing (
    id uuid PRIMARY KEY, note text NOT NULL DEFAULT 'none' CHECK (note <> ''),
    owner_id int REFERENCES owner (id) DEFERRABLE INITIALLY DEFERRED,
    before_id uuid REFERENCES thing (id),
    loud text GENERATED ALWAYS AS (upper(note)) STORED
) WITH (fillfactor = 70);
CREATE INDEX thing_by_note ON thing (note) WHERE note <> 'none';
CREATE TRIGGER thing_never_changes BEFORE UPDATE ON thing
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER thing_is_never_truncated BEFORE TRUNCATE ON thing
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
ALTER TABLE thing ENABLE ALWAYS TRIGGER thing_never_changes;
ALTER TABLE thing ENABLE ALWAYS TRIGGER thing_is_never_truncated;
REVOKE TRUNCATE ON thing FROM CURRENT_USER;
"""
PART = "CREATE TABLE part (thing_id uuid REFERENCES thing (id), number int)"


def execute(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def other_session():
    """Another session, in the same schema."""
    with psycopg.connect(**connection.get_connection_params()) as other:
        yield other


def written():
    return record(Event.LOGIN, by=BY, outcome=Outcome.SUCCESS)


def place_of(identifier, table=TABLE, key="id"):
    return execute(f"SELECT tableoid::regclass::text FROM {table} WHERE {key} = %s", identifier)[0][
        0
    ]


def names(table=TABLE):
    return [one.name for one in partitions.partitions_of(table)]


@pytest.fixture(autouse=True)
def forget_names():
    """What a process remembers is of another schema."""
    yield
    partitions.partition_of_month.cache_clear()


@pytest.fixture
def things(ledger):
    """A plain table with a row of last year, one of no month, and one that refers to them."""
    made = {"old": UUID(int=first_id(MARCH).int + 1), "foreign": UUID(int=uuid4().int | 1 << 127)}
    execute(PLAIN)
    execute(PART)
    execute("INSERT INTO thing (id, owner_id) VALUES (%s, 1), (%s, NULL)", *made.values())
    execute("INSERT INTO thing (id, before_id) VALUES (%s, %s)", first_id(MARCH), made["foreign"])
    execute("INSERT INTO part VALUES (%s, 1), (%s, 2)", *made.values())
    for statement in partitions.partition_table_sql("thing", "id"):
        execute(statement)
    return made


def test_a_plain_table_becomes_a_partition_and_ids_of_no_month_the_default(things):
    assert names("thing") == ["thing_earlier", "thing_default"]
    assert place_of(things["old"], "thing") == "thing_earlier"
    assert place_of(things["foreign"], "thing") == "thing_default"
    assert partitions.partitioned_tables()["thing"] == "id"


def test_what_is_new_falls_into_the_earlier_rows_until_the_month_is_over(things):
    new = uuid7()
    execute("INSERT INTO thing (id) VALUES (%s)", new)
    assert place_of(new, "thing") == "thing_earlier"
    made = partitions.make_partitions("thing", "id")
    assert f"thing_{Month.from_moment(datetime.now(UTC))}" not in made and made
    assert partitions.months_ahead("thing") == partitions.AHEAD


@pytest.fixture(params=["earlier", "default", "month"])
def place(request, things):
    """A row in a partition of each kind; its id and the partition."""
    if request.param == "month":
        later = datetime.now(UTC) + timedelta(days=70)
        name = partitions.make_partitions("thing", "id", since=later)[0]
        execute("INSERT INTO thing (id) VALUES (%s)", first_id(later))
        return first_id(later), name
    return things["old" if request.param == "earlier" else "foreign"], f"thing_{request.param}"


def test_every_partition_refuses_what_the_table_refused(ledger, place):
    row, name = place
    may_truncate = f"GRANT TRUNCATE ON ALL TABLES IN SCHEMA {ledger} TO CURRENT_USER"
    for statement, says in [
        (f"UPDATE thing SET note = 'x' WHERE id = '{row}'", "evidence"),
        (f"UPDATE {name} SET note = 'x' WHERE id = '{row}'", "evidence"),
        (f"TRUNCATE {name} CASCADE", "permission denied"),
        (f"{may_truncate}; TRUNCATE {name} CASCADE", "evidence"),
        (f"INSERT INTO thing (id) VALUES ('{row}')", "duplicate key"),
        ("INSERT INTO thing (id, note) VALUES (gen_random_uuid(), '')", "check constraint"),
    ]:
        with pytest.raises(DatabaseError, match=says):
            execute(statement)


def test_every_partition_has_the_tables_indexes_keys_grants_and_options(place):
    _, name = place
    indexes = execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", name)
    assert len(indexes) == 2 and any("note <> 'none'" in text for (text,) in indexes)
    kinds = execute("SELECT contype FROM pg_constraint WHERE conrelid = %s::regclass", name)
    assert {kind for (kind,) in kinds} >= {"c", "p", "f"}
    (found,) = execute(
        "SELECT reloptions, has_table_privilege(oid, 'TRUNCATE'),"
        " has_table_privilege(oid, 'UPDATE') FROM pg_class WHERE oid = %s::regclass",
        name,
    )
    assert found == (["fillfactor=70"], False, True)
    always = execute(
        "SELECT bool_and(tgenabled = 'A'), count(*) FROM pg_trigger"
        " WHERE NOT tgisinternal AND tgrelid = %s::regclass",
        name,
    )
    assert always == [(True, 2)]


def test_rows_that_refer_to_the_table_still_do(things):
    with pytest.raises(DatabaseError, match="foreign key"):
        execute("DELETE FROM thing WHERE id = %s", things["old"])
    with pytest.raises(DatabaseError, match="foreign key"):
        execute("INSERT INTO part VALUES (%s, 3)", uuid7())
    with pytest.raises(DatabaseError, match="foreign key"):
        execute("INSERT INTO thing (id, owner_id) VALUES (%s, 2)", uuid7())
    with pytest.raises(DatabaseError, match="foreign key"):
        execute("INSERT INTO thing (id, before_id) VALUES (%s, %s)", uuid7(), uuid7())


def test_a_partitioned_table_becomes_a_plain_one_again(things):
    partitions.make_partitions("thing", "id")
    rows = execute("SELECT * FROM thing ORDER BY id")
    execute(partitions.join_partitions_sql("thing"))
    assert names("thing") == []
    assert execute("SELECT * FROM thing ORDER BY id") == rows
    indexes = "SELECT indexname FROM pg_indexes WHERE tablename = 'thing' ORDER BY 1"
    assert execute(indexes) == [("thing_by_note",), ("thing_pkey",)]
    for refused in ("UPDATE thing SET note = 'x'", "TRUNCATE thing CASCADE"):
        with pytest.raises(DatabaseError), transaction.atomic():
            execute(refused)
    with pytest.raises(IntegrityError), transaction.atomic():
        execute("INSERT INTO part (thing_id) VALUES (gen_random_uuid())")


def test_records_are_written_and_kept_in_plain_tables_again(ledger):
    before = written()
    for table in (TABLE, "audit_auditpayload"):
        execute(partitions.join_partitions_sql(table))
        assert names(table) == []
    written()
    assert AuditRecord.objects.count() == 2
    with pytest.raises(DatabaseError), transaction.atomic():
        execute(f"UPDATE {TABLE} SET reason = 'x' WHERE id = %s", before)


def test_an_empty_table_leaves_no_partition_of_earlier_rows(ledger):
    assert names() == [f"{TABLE}_default"]


def test_this_month_and_the_next_two_are_made_once(ledger):
    made = partitions.make_partitions(TABLE, "id", since=datetime(2020, 11, 30, 23, 59, tzinfo=UTC))
    assert made == [f"{TABLE}_{month}" for month in ("2020_11", "2020_12", "2021_01")]
    assert partitions.make_partitions(TABLE, "id", since=datetime(2020, 11, 1, tzinfo=UTC)) == []
    assert partitions.months_ahead(TABLE, since=MARCH) == -1


def test_all_tables_get_theirs_and_how_many_is_measured(ledger):
    assert len(partitions.make_all_partitions()) == 2 * (partitions.AHEAD + 1)
    assert metrics.partitions_ahead.labels(TABLE)._value.get() == partitions.AHEAD
    made = written()
    assert place_of(made) == f"{TABLE}_{Month.from_moment(datetime.now(UTC))}"


def test_rows_of_a_month_without_a_partition_move_when_it_gets_one(ledger):
    made = written()
    assert place_of(made) == f"{TABLE}_default"
    partitions.make_partitions(TABLE, "id")
    assert place_of(made) == f"{TABLE}_{Month.from_moment(datetime.now(UTC))}"
    with pytest.raises(DatabaseError, match="evidence"):
        AuditRecord.objects.filter(pk=made).delete()


def test_too_many_of_them_stay_and_it_is_said(ledger, monkeypatch, caplog):
    monkeypatch.setattr(partitions, "MOST_MOVED", 1)
    made = [written(), written()]
    with pytest.raises(IntegrityError, match="too many"):
        partitions.make_partitions(TABLE, "id")
    partitions.make_all_partitions()
    assert "no partitions were made of audit_auditrecord" in caplog.text
    assert metrics.partitions_ahead.labels(TABLE)._value.get() == -1
    assert place_of(made[0]) == f"{TABLE}_default"


def test_a_lock_is_waited_for_only_for_a_moment(ledger):
    with other_session() as other:
        other.execute(f"SELECT FROM {TABLE}")
        with pytest.raises(PartitionBusy):
            partitions.make_partitions(TABLE, "id")
    assert len(partitions.make_partitions(TABLE, "id")) == partitions.AHEAD + 1


def test_two_at_once_make_each_partition_once(ledger):
    with other_session() as other:
        key = f"toolcrib:partitions:{TABLE}"
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
        with pytest.raises(PartitionBusy):
            partitions.make_partitions(TABLE, "id")


def test_records_are_written_while_partitions_are_made(ledger):
    partitions.make_partitions(TABLE, "id")
    with other_session() as other:
        other.execute(f"INSERT INTO {TABLE} SELECT (jsonb_populate_record(NULL::{TABLE}, %s)).*", [
            psycopg.types.json.Jsonb(ROW | {"id": str(uuid7())})
        ])  # fmt: skip
        later = datetime.now(UTC) + timedelta(days=200)
        assert partitions.make_partitions(TABLE, "id", since=later)


ROW = {
    "organization": "here", "occurred_at": "2026-01-01T00:00Z", "code": "AUTH.LOGIN",
    "outcome": "success", "reason": "", "actor_kind": "person", "actor": "p", "actor_id": "",
    "token_id": "", "subject": "", "subject_digest": "", "request_id": "", "source_ip": "",
    "details": {}, "mac": "", "transaction": "1",
}  # fmt: skip


def test_a_record_is_looked_for_in_the_partition_of_its_id(ledger):
    partitions.make_all_partitions()
    rows = execute("EXPLAIN SELECT * FROM audit_auditrecord WHERE id = %s", uuid7())
    plan = " ".join(line for (line,) in rows)
    assert f"{TABLE}_{Month.from_moment(datetime.now(UTC))}" in plan
    assert "default" not in plan and "Append" not in plan


def test_an_id_of_this_month_is_in_a_partition_that_is_known_by_name(ledger):
    now = datetime.now(UTC)
    assert partitions.partition_of_month(TABLE, 2020, 3) is None
    partitions.make_partitions(TABLE, "id")
    found = partitions.partition_of_month(TABLE, now.year, now.month)
    assert found.name == f"{TABLE}_{Month.from_moment(now)}" == place_of(written())
    assert found.contains(uuid7()) and not found.contains(found.end)


def test_earlier_rows_are_in_the_partition_of_this_month_until_it_is_over(things):
    now = datetime.now(UTC)
    found = partitions.partition_of_month("thing", now.year, now.month)
    assert (found.name, found.first) == ("thing_earlier", Month.from_moment(now).first_id)


def test_what_others_refer_to_is_not_dropped(things):
    partitions.make_partitions("thing", "id", since=MARCH + timedelta(days=4000))
    month = partitions.partitions_of("thing")[1]
    execute("INSERT INTO thing (id) VALUES (%s)", month.first)
    execute("INSERT INTO part VALUES (%s, 1)", month.first)
    with pytest.raises(IntegrityError):
        partitions.drop_partitions([month], keep=lambda: False)
    execute("DELETE FROM part WHERE thing_id = %s", month.first)
    assert partitions.drop_partitions([month], keep=lambda: False)
    assert month not in partitions.partitions_of("thing")


def test_ids_of_a_moment_are_in_their_order():
    moment = datetime.now(UTC)
    assert first_id(moment) <= uuid7() < first_id(moment + timedelta(minutes=5))
    assert Month(2026, 12).following == Month(2027, 1)
