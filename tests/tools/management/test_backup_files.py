"""Backup files on disk: what the manifest verifies, and the error of each invalid backup."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from config.local import datadir, process_specs
from config.local.unix_accounts import sandbox_account
from tools.management import backup_files
from tools.management.backup_files import BackupFailed, BadBackup, LogHead, Manifest

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
def backup(tmp_path: Path) -> Path:
    place = tmp_path / "backup"
    backup_files.check_target(place, tmp_path / "var")
    backup_files.write(place / "keys" / "installation.id", b"0123456789abcdef")
    backup_files.write(place / "database.dump", b"rows" * 1000)
    backup_files.write_manifest(place, SAID)
    return place


def rewritten(backup: Path, **said: Any) -> Manifest:
    """The manifest with other values, as another release would have written it."""
    for name in (backup_files.MANIFEST, backup_files.MANIFEST_DIGEST):
        (backup / name).unlink()
    backup_files.write_manifest(backup, SAID | said)
    return backup_files.read_manifest(backup)


def test_a_manifest_says_what_each_file_must_be(backup: Path) -> None:
    manifest = backup_files.read_manifest(backup)
    backup_files.check_files(backup, manifest)
    backup_files.check_not_newer(manifest, KNOWN)
    sizes = {file.name: file.size for file in manifest.files}
    assert sizes == {"database.dump": 4000, "keys/installation.id": 16}
    assert manifest.logs == SAID["logs"]
    assert manifest.product == backup_files.product_version()


def test_only_its_owner_reads_it(backup: Path) -> None:
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in (backup, *backup.rglob("*"))}
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
def test_a_damaged_file_is_named(backup: Path, damage: Any, says: str) -> None:
    damage(backup / "database.dump")
    with pytest.raises(BadBackup, match=says):
        backup_files.check_files(backup, backup_files.read_manifest(backup))


def test_a_key_of_payloads_may_be_taken_out_to_erase_what_it_opens(backup: Path) -> None:
    backup_files.write(backup / "keys" / "payloads" / "acme.key", b"k" * 32)
    manifest = rewritten(backup)
    assert backup_files.check_files(backup, manifest) == []
    changed(backup / "keys" / "payloads" / "acme.key")
    with pytest.raises(BadBackup, match=r"acme\.key is not what was written"):
        backup_files.check_files(backup, manifest)
    (backup / "keys" / "payloads" / "acme.key").unlink()
    assert backup_files.check_files(backup, manifest) == ["keys/payloads/acme.key"]


@pytest.mark.parametrize("name", [backup_files.MANIFEST, backup_files.MANIFEST_DIGEST])
def test_a_backup_that_was_cut_off_has_no_manifest(backup: Path, name: str) -> None:
    (backup / name).unlink()
    with pytest.raises(BadBackup, match=f"no whole backup: it has no {name}"):
        backup_files.read_manifest(backup)


@pytest.mark.parametrize("name", [backup_files.MANIFEST, backup_files.MANIFEST_DIGEST])
def test_a_manifest_that_was_changed_is_found(backup: Path, name: str) -> None:
    changed(backup / name)
    with pytest.raises(BadBackup, match=r"damaged: manifest\.json is not what was written"):
        backup_files.read_manifest(backup)


def test_a_name_that_leads_out_of_the_backup_is_no_file_of_it(backup: Path) -> None:
    file = backup_files.BackupFile("../outside", 1, "00")
    (backup.parent / "outside").write_bytes(b"x")
    assert backup_files._flaw(backup, file) == "../outside is missing"


def test_a_newer_format_is_refused(backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_files, "FORMAT", 2)
    rewritten_by_newer = {"remarks": ["of a newer one"]}
    for name in (backup_files.MANIFEST, backup_files.MANIFEST_DIGEST):
        (backup / name).unlink()
    backup_files.write_manifest(backup, SAID | rewritten_by_newer)
    monkeypatch.undo()
    with pytest.raises(BadBackup, match="a form that this Toolcrib does not know"):
        backup_files.read_manifest(backup)


def test_newer_migrations_are_refused(backup: Path) -> None:
    manifest = rewritten(backup, migrations=["audit.0001_initial", "tools.0999_later"])
    with pytest.raises(BadBackup, match=r"tools\.0999_later is not known here"):
        backup_files.check_not_newer(manifest, KNOWN)


@pytest.mark.parametrize("version", ["0.1.1", "0.10", "2"])
def test_a_newer_product_is_refused(backup: Path, version: str) -> None:
    text = json.loads((backup / backup_files.MANIFEST).read_text()) | {"product": version}
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
    account.own(tmp_path / "back", 0o755)
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
