"""Backups of the tests' stores are restored beside them, or refused. The complete drill is
`tests/tools/management/test_backup_drill.py`."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from config.local import datadir, oxigraph, postgres, process_specs
from config.local.unix_accounts import sandbox_account
from tests import factories
from tools.catalog.signatures import newest
from tools.management import backup_files, backups
from tools.management.backup_files import BackupFailed, BadBackup, LogHead, Manifest
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


SAID: dict[str, Any] = {
    "moment": datetime(2026, 1, 2, tzinfo=UTC).isoformat(),
    "server": 18,
    "role": "toolcrib",
    "migrations": ["audit.0001_initial", "tools.0001_initial"],
    "secret_key": "00",
    "logs": [LogHead("acme", 3, "ab" * 32)],
    "left_out": [],
    "remarks": [],
}
KNOWN = {"audit.0001_initial", "tools.0001_initial", "tools.0002_more"}


@pytest.fixture
def written_backup(tmp_path: Path) -> Path:
    place = tmp_path / "backup"
    backup_files.check_target(place, tmp_path / "var")
    backup_files.write(place / "keys" / "installation.id", b"0123456789abcdef")
    backup_files.write(place / "database.dump", b"rows" * 1000)
    backup_files.write_manifest(place, SAID)
    return place


def rewritten(written_backup: Path, **said: Any) -> Manifest:
    """The manifest with other values, as another release would have written it."""
    for name in (backup_files.MANIFEST, backup_files.MANIFEST_DIGEST):
        (written_backup / name).unlink()
    backup_files.write_manifest(written_backup, SAID | said)
    return backup_files.read_manifest(written_backup)


def test_a_manifest_says_what_each_file_must_be(written_backup: Path) -> None:
    manifest = backup_files.read_manifest(written_backup)
    backup_files.check_files(written_backup, manifest)
    backup_files.check_not_newer(manifest, KNOWN)
    sizes = {file.name: file.size for file in manifest.files}
    assert sizes == {"database.dump": 4000, "keys/installation.id": 16}
    assert manifest.logs == SAID["logs"]
    assert manifest.product == backup_files.product_version()


def test_only_its_owner_reads_it(written_backup: Path) -> None:
    modes = {
        path.is_dir(): path.stat().st_mode & 0o777
        for path in (written_backup, *written_backup.rglob("*"))
    }
    assert modes == {True: 0o700, False: 0o600}


def changed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (changed, "database.dump is not what was written"),
        (Path.unlink, "database.dump is missing"),
        (lambda file: os.truncate(file, 3999), "has 3999 bytes and should have 4000"),
    ],
    ids=["changed", "missing", "truncated"],
)
def test_a_damaged_file_is_named(written_backup: Path, damage: Any, says: str) -> None:
    damage(written_backup / "database.dump")
    with pytest.raises(BadBackup, match=says):
        backup_files.check_files(written_backup, backup_files.read_manifest(written_backup))


def test_a_key_of_payloads_may_be_taken_out_to_erase_what_it_opens(written_backup: Path) -> None:
    backup_files.write(written_backup / "keys" / "payloads" / "acme.key", b"k" * 32)
    manifest = rewritten(written_backup)
    assert backup_files.check_files(written_backup, manifest) == []
    changed(written_backup / "keys" / "payloads" / "acme.key")
    with pytest.raises(BadBackup, match=r"acme\.key is not what was written"):
        backup_files.check_files(written_backup, manifest)
    (written_backup / "keys" / "payloads" / "acme.key").unlink()
    assert backup_files.check_files(written_backup, manifest) == ["keys/payloads/acme.key"]


@pytest.mark.parametrize("name", [backup_files.MANIFEST, backup_files.MANIFEST_DIGEST])
def test_a_backup_that_was_cut_off_has_no_manifest(written_backup: Path, name: str) -> None:
    (written_backup / name).unlink()
    with pytest.raises(BadBackup, match=f"no whole backup: it has no {name}"):
        backup_files.read_manifest(written_backup)


@pytest.mark.parametrize("name", [backup_files.MANIFEST, backup_files.MANIFEST_DIGEST])
def test_a_manifest_that_was_changed_is_found(written_backup: Path, name: str) -> None:
    changed(written_backup / name)
    with pytest.raises(BadBackup, match=r"damaged: manifest\.json is not what was written"):
        backup_files.read_manifest(written_backup)


def test_a_name_that_leads_out_of_the_backup_is_no_file_of_it(written_backup: Path) -> None:
    file = backup_files.BackupFile("../outside", 1, "00")
    (written_backup.parent / "outside").write_bytes(b"x")
    assert backup_files._flaw(written_backup, file) == "../outside is missing"


def test_a_newer_format_is_refused(written_backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_files, "FORMAT", 2)
    rewritten_by_newer = {"remarks": ["of a newer one"]}
    for name in (backup_files.MANIFEST, backup_files.MANIFEST_DIGEST):
        (written_backup / name).unlink()
    backup_files.write_manifest(written_backup, SAID | rewritten_by_newer)
    monkeypatch.undo()
    with pytest.raises(BadBackup, match="a form that this Toolcrib does not know"):
        backup_files.read_manifest(written_backup)


def test_newer_migrations_are_refused(written_backup: Path) -> None:
    manifest = rewritten(written_backup, migrations=["audit.0001_initial", "tools.0999_later"])
    with pytest.raises(BadBackup, match=r"tools\.0999_later is not known here"):
        backup_files.check_not_newer(manifest, KNOWN)


@pytest.mark.parametrize("version", ["0.1.1", "0.10", "2"])
def test_a_newer_product_is_refused(written_backup: Path, version: str) -> None:
    text = json.loads((written_backup / backup_files.MANIFEST).read_text()) | {"product": version}
    del text["format"]
    with pytest.raises(BadBackup, match="newer than this one"):
        backup_files.check_not_newer(Manifest(**text), KNOWN)


def test_a_target_that_holds_something_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(BackupFailed, match="is not empty"):
        backup_files.check_target(tmp_path, Path("/nowhere"))
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_target_in_the_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="is in the data directory"):
        backup_files.check_target(tmp_path / "workspaces" / "acme", tmp_path)
    assert not (tmp_path / "workspaces").exists()


def test_what_tools_left_comes_back_as_it_was(tmp_path: Path) -> None:
    """A link that leads outside stays a link, a sparse file stays sparse, and all files belong to
    the account."""
    place, account = tmp_path / "acme", sandbox_account()
    (place / "deep").mkdir(parents=True)
    (place / "deep" / "run.sh").write_text("true")
    (place / "deep" / "run.sh").chmod(0o750)
    (place / "out").symlink_to("/etc/passwd")
    with (place / "holes").open("wb") as file:
        file.truncate(1 << 30)
    assert backup_files.pack(place, tmp_path / "acme.tar.gz") == []
    assert (tmp_path / "acme.tar.gz").stat().st_size < 10_000
    account.make_directory(tmp_path / "back", 0o755)
    backup_files.unpack(
        tmp_path / "acme.tar.gz", tmp_path / "back", account, process_specs.interpreter()
    )
    back = tmp_path / "back"
    assert (back / "out").readlink() == Path("/etc/passwd")
    assert (back / "holes").stat().st_size == 1 << 30
    assert (back / "holes").stat().st_blocks == 0
    assert (back / "deep" / "run.sh").stat().st_mode & 0o777 == 0o750
    assert {path.lstat().st_uid for path in back.rglob("*")} == {account.uid}


def test_a_file_that_cannot_be_read_is_a_remark(tmp_path: Path) -> None:
    """Root reads all files; a file that disappears meanwhile is reported in the same way."""
    place = tmp_path / "acme"
    place.mkdir()
    (place / "secret").write_text("x")
    (place / "secret").chmod(0)
    remarks = backup_files.pack(place, tmp_path / "acme.tar.gz")
    if os.geteuid():
        assert len(remarks) == 1 and "secret" in remarks[0]
    else:
        assert remarks == []


def test_after_a_restore_that_was_cut_off_nothing_starts(tmp_path: Path) -> None:
    (tmp_path / datadir.UNFINISHED_RESTORE).touch()
    with (
        pytest.raises(datadir.DataDirectoryUnusable, match="did not come to its end"),
        datadir.locked_directory(tmp_path),
    ):
        pass
