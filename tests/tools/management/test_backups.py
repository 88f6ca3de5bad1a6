"""Backups of the tests' stores are restored beside them, or refused. The complete drill is
`tests/tools/management/test_backup_drill.py`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from config.local import oxigraph, postgres, process_specs
from tests import factories
from tools.catalog.signatures import newest
from tools.management import backup_files, backups
from tools.management.backup_files import BadBackup, Manifest
from tools.models import Organization, PersonSession, Tool


@contextmanager
def empty_database() -> Iterator[psycopg.Connection]:
    name = f"restored_{uuid4().hex[:12]}"
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            with psycopg.connect(server.info.dsn, dbname=name, autocommit=True) as made:
                yield made
        finally:
            server.execute(f"DROP DATABASE {name}")


def test_a_backup_is_of_one_moment_and_loads_with_its_refusals(
    committed: None, organization: Organization, tmp_path: Path
) -> None:
    """pg_dump reads the exported snapshot, in spite of concurrent writes. One person is logged
    in."""
    browser = BrowserSession.objects.create(session_key=uuid4().hex, expire_date=timezone.now())
    user = factories.superuser(organization)
    PersonSession.objects.create(session=browser, user=user)
    params = connection.get_connection_params()
    with psycopg.connect(**params) as reader, empty_database() as loaded:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        (snapshot,) = reader.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        later = factories.organization(f"org-{uuid4().hex[:12]}")
        with postgres.dump_snapshot(reader, snapshot, tmp_path / "database.dump"):
            pass
        postgres.load_dump(loaded, tmp_path / "database.dump")
        found = loaded.execute("SELECT slug FROM tools_organization").fetchall()
        assert (organization.slug,) in found and (later.slug,) not in found
        assert loaded.execute("SELECT * FROM django_session").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            loaded.execute("DELETE FROM audit_auditleaf")
        with pytest.raises(psycopg.errors.RestrictViolation):
            loaded.execute("DELETE FROM audit_auditrecord")
        with pytest.raises(postgres.DatabaseCopyFailed, match="could not be loaded"):
            postgres.load_dump(loaded, tmp_path / "database.dump")


@pytest.mark.django_db
def test_no_row_of_a_backup_refers_to_a_session_that_is_not_in_it() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND confrelid = ANY(%s::regclass[])",
            [list(postgres.SESSION_TABLES)],
        )
        assert {name for (name,) in cursor.fetchall()} <= {*postgres.SESSION_TABLES}


@pytest.fixture
def backup(committed: None, organization: Organization, tmp_path: Path) -> Path:
    tool = factories.tool(organization)
    newest.append(organization.pk, [f"seen {tool.pk} 1", f"seen {tool.pk} 99"])  # 99: later
    call_command("backup", str(tmp_path / "backup"))
    return tmp_path / "backup"


def test_a_backup_says_what_it_holds_and_nothing_else_is_restored_over_data(
    backup: Path, organization: Organization, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = backup_files.read_manifest(backup)
    backup_files.check_files(backup, manifest)
    backup_files.check_not_newer(manifest, backups._known_migrations())
    names = {file.name for file in manifest.files}
    assert {"database.dump", "graphs.nq.gz", "secret_key", "keys/signing.pem"} <= names
    seen = (backup / "keys" / "newest" / str(organization.pk)).read_text().split()
    assert "1" in seen and "99" not in seen
    backups._check_secret(backup, manifest)
    for arguments, says in (((backup,), "holds an installation already"),
                            ((backup / "keys",), "it has no manifest.json")):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            call_command("restore", *map(str, arguments))
        assert ended.value.code == 1 and says in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call_command("backup", str(backup))
    assert "is not empty" in capsys.readouterr().err


def test_what_does_not_fit_the_backup_is_refused(
    backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = backup_files.read_manifest(backup)
    monkeypatch.setenv("SECRET_KEY", "another one")
    with pytest.raises(BadBackup, match="or unset it: the backup holds it"):
        backups._check_secret(backup, manifest)
    with pytest.raises(BadBackup, match="belong to the user toolcrib"):
        backups._check_role(manifest, "somebody")
    with pytest.raises(BadBackup, match="holds tables already"):
        backups._check_database(manifest)
    with empty_database_of_django(monkeypatch):
        backups._check_database(manifest)
        with pytest.raises(BadBackup, match="into one that is not older"):
            backups._check_database(newer_server(manifest))


@contextmanager
def empty_database_of_django(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with empty_database() as made, closing(connection.copy()) as other:
        other.settings_dict["NAME"] = made.info.dbname
        other.settings_dict["OPTIONS"] = {**other.settings_dict["OPTIONS"], "pool": False}
        monkeypatch.setattr(backups, "connection", other)
        yield


def newer_server(manifest: Manifest) -> Manifest:
    return replace(manifest, server=manifest.server + 1)


@pytest.mark.django_db
def test_versions_that_a_database_lacks_were_never_seen(organization: Organization) -> None:
    tool, other = factories.tool(organization), Tool(organization=organization)
    lines = [f"seen {tool.pk} 1", "", f"seen {tool.pk} 2", f"accept {tool.pk} 1", "distrust ab",
             f"seen {other.pk} 1", "seen nonsense"]  # fmt: skip
    kept = newest.as_of("\n".join(lines), {tool.pk: 1}).splitlines()
    assert kept == [f"seen {tool.pk} 1", "", f"accept {tool.pk} 1", "distrust ab", "seen nonsense"]


def test_graphs_come_back_as_they_were(servers_in: Path, tmp_path: Path) -> None:
    account = process_specs.knowledge(tmp_path).account
    tmp_path.chmod(0o711)
    quads = b'<urn:s> <urn:p> "\xc3\xa9" <urn:g> .\n'
    oxigraph.load_graphs(tmp_path, [quads], account=account, reach=process_specs.interpreter())
    with pytest.raises(oxigraph.GraphCopyFailed, match="could not be loaded"):
        oxigraph.load_graphs(
            tmp_path, [b"<urn:s> oops"], account=account, reach=process_specs.interpreter()
        )
    assert all(part for part in oxigraph.dump_graphs(servers_in))


def test_graphs_of_a_server_that_does_not_answer_are_no_backup(tmp_path: Path) -> None:
    with pytest.raises(oxigraph.GraphCopyFailed, match="could not be dumped"):
        list(oxigraph.dump_graphs(tmp_path))
