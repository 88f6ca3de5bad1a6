"""Evidence is appended, never changed; and it holds no secrets."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.redaction import MAX_ITEMS, MAX_TEXT, Redactor

BY = Actor("person", "p", "somewhere")


def written(**fields):
    return record(Event.LOGIN, by=BY, outcome=Outcome.SUCCESS, **fields)


@pytest.fixture
def row(db):
    written(subject="x")
    return AuditRecord.objects.filter(organization="somewhere").latest("id")


def test_a_name_that_no_column_takes_is_on_record_as_well(db):
    kept = written(subject="a\x00b")
    assert AuditRecord.objects.get(pk=kept).subject == "a\ufffdb"


@pytest.mark.parametrize("change", [{"subject": "y"}, {"outcome": "denied"}, {"details": {"a": 1}}])
def test_a_record_never_changes(row, change):
    with pytest.raises(DatabaseError, match=r"evidence|permission denied"), transaction.atomic():
        AuditRecord.objects.filter(pk=row.pk).update(**change)
    row.refresh_from_db()
    assert row.subject == "x"


def test_a_record_is_never_removed(row):
    with pytest.raises(DatabaseError, match=r"evidence|permission denied"), transaction.atomic():
        row.delete()
    assert AuditRecord.objects.filter(pk=row.pk).exists()


def test_records_are_never_truncated(row):
    with (
        pytest.raises(DatabaseError, match=r"evidence|permission denied"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("TRUNCATE audit_auditrecord")
    assert AuditRecord.objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize(
    "fields", [{"actor": ""}, {"organization": ""}, {"code": ""}, {"outcome": "maybe"}]
)
def test_a_record_names_its_actor_its_place_its_event_and_its_outcome(db, fields):
    whole = {"organization": "o", "code": "X", "outcome": "denied", "actor_kind": "p", "actor": "a"}
    with pytest.raises(IntegrityError):
        AuditRecord.objects.create(**whole | fields)


def test_a_record_belongs_to_the_transaction_of_its_deed(db):
    with transaction.atomic():
        written(subject="undone")
        transaction.set_rollback(True)
    assert not AuditRecord.objects.filter(subject="undone").exists()


SECRETS = {
    "our token": "tcr_aB3dEf9h_" + "x" * 43 + "abc123",
    "GitHub": "ghp_" + "a" * 36,
    "GitLab": "glpat-" + "a" * 20,
    "Slack": "xoxb-" + "1" * 20,
    "OpenAI": "sk-" + "a" * 30,
    "AWS": "AKIA" + "A" * 16,
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "private key": "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----",
    "bearer": "Bearer abcdefghijklmnop0123",
}
KEYS = ["password", "passwd", "db_password", "passphrase", "secret", "client_secret", "token",
        "access_token", "accessToken", "api_key", "apiKey", "api-key", "X-Api-Key", "private_key",
        "Authorization", "cookie", "Set-Cookie", "credentials", "session_id", "sessionId", "pin",
        "otp"]  # fmt: skip
redactor = Redactor(b"key")


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_what_looks_like_a_secret_is_taken_out(secret):
    cleaned = redactor.clean({"a": [f"before {secret} after"], f"{secret}": 1})
    assert secret not in str(cleaned)
    assert cleaned["a"][0].startswith("before [redacted")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["hunter2", 1234, ["hunter2"], {"deep": "hunter2"}], ids=str)
def test_what_a_key_calls_a_secret_is_taken_out(key, value):
    assert str(redactor.clean({"x": {key: value}})["x"][key]).startswith("[redacted")


@pytest.mark.parametrize(
    "key", ["path", "token_count", "keyboard", "author", "passenger", "spinner"]
)
def test_ordinary_keys_stay(key):
    assert redactor.clean({key: "value"}) == {key: "value"}


def test_equal_secrets_of_two_organizations_leave_different_marks():
    marks = {str(Redactor(key).clean({"password": "x"})) for key in (b"a", b"b")}
    assert len(marks) == 2


def test_long_values_are_cut_with_a_marker():
    cleaned = redactor.clean(
        {"text": "x" * 50_000, "list": [1] * 500, "object": {str(n): n for n in range(500)}}
    )
    assert len(cleaned["text"]) < MAX_TEXT + 50
    assert cleaned["list"][-1].startswith("… 400 more [whole ")
    assert len(cleaned["object"]) == MAX_ITEMS + 1
    assert cleaned["object"]["…"].startswith("400 more [whole ")


def test_what_is_written_is_redacted(db):
    written(details={"parameters": {"password": "hunter2", "note": SECRETS["our token"]}})
    text = str(AuditRecord.objects.filter(organization="somewhere").latest("id").details)
    assert "hunter2" not in text
    assert SECRETS["our token"] not in text
