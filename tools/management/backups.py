"""Backup and restore of an installation. Decision 19 has the order of the steps and the reasons."""

import gzip
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Max
from django.utils.crypto import salted_hmac

from audit.log import anchors, checkpoint_publication, key_files, merkle
from audit.log.seal_batches import split_frontier
from audit.models import AuditLog, AuditSegment, Checkpoint
from audit.records import retention
from audit.verification import verification_report
from audit.verification.verification_report import RecordLoss
from config import database
from config.env import env_text
from config.local import datadir, deployment, embedded, oxigraph, postgres, process_specs
from config.local.supervisor import Supervisor
from config.local.unix_accounts import sandbox_account
from tools.catalog.signatures import newest
from tools.management import backup_files
from tools.management.backup_files import BackupFailed, BadBackup, LogHead, Manifest
from tools.models import ToolVersion

DATABASE, GRAPHS = "database.dump", "graphs.nq.gz"
# Allowed in an empty installation: what commands generate or an operator put there, and published
# notes, which outlive a restore.
_NOT_DATA = frozenset({"anchors", "lost+found", "log", "metrics", "run", "secret_key", "up.lock"})
_AS_FILES = frozenset({"audit-archive", "keys", "secret_key"})
_OWN_KEYS = "audit-checkpoint"
_ANYTHING = """
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND n.nspname !~ '^pg_|^information_schema$'
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
)
"""
CANNOT = (
    *deployment.CANNOT_START,
    BackupFailed,
    BadBackup,
    anchors.BadAnchor,
    oxigraph.GraphCopyFailed,
    postgres.DatabaseCopyFailed,
    psycopg.Error,
    OSError,
)


@dataclass(frozen=True, slots=True)
class Moment:
    """What the database held at the moment of a backup, beside its dump."""

    at: datetime
    snapshot: str
    migrations: list[str]
    logs: list[LogHead]
    checkpoints: dict[str, str]  # the newest note of each directory of anchors
    archived: dict[str, str]  # digests of files, by name
    versions: dict[str, dict[UUID, int]]  # of organizations and their tools, the newest number


def back_up(target: Path) -> Manifest:
    """Back up everything that cannot be regenerated, as of one moment, while calls go on.

    Raises what `CANNOT` names; without a manifest, what was written so far is no backup.
    """
    data: Path = settings.DATA_DIR
    backup_files.check_target(target, data)
    with _stores_of(data):
        published = (
            anchors.newest_notes()
        )  # before the snapshot, which then has all of these checkpoints
        with _snapshot():
            moment = _moment()
            assert isinstance(connection.connection, psycopg.Connection)
            server = connection.connection
            with postgres.dump_snapshot(server, moment.snapshot, target / DATABASE):
                if not env_text("SPARQL_URL"):
                    backup_files.compress(oxigraph.dump_graphs(data), target / GRAPHS)
                remarks = _copy_workspaces(target)
                _copy_keys(data, target, moment)
                anchors.copy_anchors(target / "anchors", _until(published, moment))
                remarks += _copy_archive(target, moment)
            said = {
                "moment": moment.at.isoformat(),
                "server": postgres.major_version(server),
                "role": server.info.user,
                "migrations": moment.migrations,
                "secret_key": _mark(settings.SECRET_KEY),
                "logs": moment.logs,
                "left_out": _left_out(),
                "remarks": remarks,
            }
    return backup_files.write_manifest(target, said)


@dataclass(frozen=True, slots=True)
class Restored:
    manifest: Manifest
    logs: list[str]  # logs that contain all published checkpoints
    losses: list[RecordLoss]
    remarks: list[str]


def restore(source: Path) -> Restored:
    """Restore a backup into an empty installation, and compare its logs with their published
    checkpoints. Raises what `CANNOT` names, mostly before anything was written."""
    data: Path = settings.DATA_DIR
    manifest = backup_files.read_manifest(source)
    backup_files.check_not_newer(manifest, _known_migrations())
    _check_empty(data)
    _check_secret(source, manifest)
    _check_role(manifest, str(settings.DATABASES["default"]["USER"] or manifest.role))
    erased = backup_files.check_files(source, manifest)
    with datadir.locked_directory(data):
        if env_text("DATABASE_URL"):
            with _database_of(data):
                _check_database(manifest)
        (data / datadir.UNFINISHED_RESTORE).touch(0o600)
        anchors.restore_anchors(source / "anchors")
        _put_files(source, manifest, data)
        remarks = [
            f"{name} was taken out of the backup: what it opened is erased." for name in erased
        ]
        remarks += _put_graphs(source, data)
        with _database_of(data):
            server = _check_database(manifest)
            postgres.load_dump(server, source / DATABASE)
            deployment.migrate()
            checkpoint_publication.compare_logs()
            restored = _compared(manifest, remarks)
        (data / datadir.UNFINISHED_RESTORE).unlink()
    return restored


def _moment() -> Moment:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SELECT clock_timestamp(), pg_export_snapshot()")
        at, exported = cursor.fetchone()
    logs = list(AuditLog.objects.order_by("name"))
    newest_ids = Checkpoint.objects.values("log").annotate(newest=Max("id")).values("newest")
    notes = Checkpoint.objects.filter(pk__in=newest_ids).values_list("log__name", "note")
    applied = MigrationRecorder(connection).applied_migrations()
    versions: dict[str, dict[UUID, int]] = {}
    rows = ToolVersion.objects.values_list("tool__organization_id", "tool_id")
    for organization, tool, number in rows.annotate(newest=Max("number")).order_by():
        versions.setdefault(str(organization), {})[tool] = number
    return Moment(
        at=at,
        snapshot=exported,
        migrations=sorted(".".join(name) for name in applied),
        logs=[_head(log) for log in logs],
        checkpoints={key_files.safe_name(name): note for name, note in notes},
        archived=dict(AuditSegment.objects.order_by("file").values_list("file", "sha256")),
        versions=versions,
    )


@contextmanager
def _snapshot() -> Iterator[None]:
    """A database snapshot: all reads in this context see one moment, however long it takes."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


def _head(log: AuditLog) -> LogHead:
    try:
        root = merkle.frontier_root(split_frontier(bytes(log.frontier), log.size)).hex()
    except ValueError:
        root = ""  # a damaged log is backed up unchanged; audit_verify reports the damage
    return LogHead(log.name, log.size, root)


def _until(published: dict[str, str], moment: Moment) -> dict[str, set[str]]:
    """The last notes of the anchors that belong to this backup: the last one before its moment,
    or one that its database has."""
    names = {*published, *moment.checkpoints}
    known = {name: {published.get(name, ""), moment.checkpoints.get(name, "")} for name in names}
    return {name: notes - {""} for name, notes in known.items()}


def _copy_workspaces(target: Path) -> list[str]:
    remarks: list[str] = []
    root = Path(settings.WORKSPACES_DIR)
    for place in sorted(root.iterdir()) if root.is_dir() else ():
        if place.is_dir() and not place.is_symlink():
            (target / "workspaces").mkdir(mode=0o700, exist_ok=True)
            packed = target / "workspaces" / f"{place.name}.tar.gz"
            remarks += backup_files.pack(place, packed)
    return remarks


def _copy_keys(data: Path, target: Path, moment: Moment) -> None:
    """Copied after the snapshot: the keys that its rows need were written before they committed."""
    keys = Path(settings.KEYS_DIR)
    for path in sorted(keys.rglob("*")) if keys.is_dir() else ():
        name = path.relative_to(keys)
        if not path.is_file() or path.name.startswith("."):
            continue  # a temporary file without its final name
        if name.parts[0] == newest.FOLDER:
            numbers = moment.versions.get(path.name, {})
            text = newest.as_of(path.read_text("ascii", "replace"), numbers)
            backup_files.write(target / "keys" / name, text.encode("ascii", "replace"))
        else:
            backup_files.copy_file(path, target / "keys" / name)
    for path in (data / "secret_key", *sorted(data.glob("service-*.key"))):
        if path.is_file() and not (path.name == "secret_key" and env_text("SECRET_KEY")):
            backup_files.copy_file(path, target / path.name)


def _copy_archive(target: Path, moment: Moment) -> list[str]:
    """Copy the files that the snapshot names; a newer file is written again."""
    remarks = []
    for name in moment.archived:
        path = retention.archive_directory() / name
        if not path.is_file():
            remarks.append(f"audit-archive/{name} is not here, so it is not in the backup")
            continue
        for one in (path, path.with_suffix(".checkpoint"), path.with_suffix(".manifest")):
            if one.is_file():
                backup_files.copy_file(
                    one, target / "audit-archive" / Path(name).with_name(one.name)
                )
    return remarks


def _left_out() -> list[str]:
    found = [
        "environment variables, and files that they name",
        "sessions of people: everybody logs in again",
        "exports of evidence that somebody asked for: they are made again",
        "Redis or Valkey: it holds nothing that PostgreSQL does not",
    ]
    if env_text("SECRET_KEY"):
        found.append("SECRET_KEY, which is set in the environment: keep it")
    if env_text("SPARQL_URL"):
        found.append("the graphs, which are where SPARQL_URL says: back that store up by itself")
    return found


def _mark(secret: str) -> str:
    return salted_hmac(
        "toolcrib.backup", "secret_key", secret=secret, algorithm="sha256"
    ).hexdigest()


def _known_migrations() -> set[str]:
    loader = MigrationLoader(None, ignore_no_migrations=True)
    replaced = {name for one in loader.disk_migrations.values() for name in one.replaces}
    return {".".join(name) for name in (*loader.disk_migrations, *replaced)}


def _check_empty(data: Path) -> None:
    found = {path.name for path in data.iterdir()} - _NOT_DATA if data.is_dir() else set()
    if "workspaces" in found and not any((data / "workspaces").iterdir()):
        found.remove("workspaces")
    keys = Path(settings.KEYS_DIR)
    if "keys" in found and all(path.name.startswith(_OWN_KEYS) for path in keys.iterdir()):
        found.remove("keys")
    if found - {datadir.UNFINISHED_RESTORE}:
        raise BadBackup(
            f"{data} holds an installation already ({', '.join(sorted(found))}): set TOOLCRIB_DATA"
            " to a directory that is new or empty."
        )


def _check_secret(source: Path, manifest: Manifest) -> None:
    kept, ours = source / "secret_key", env_text("SECRET_KEY")
    secret = ours or (kept.read_text("ascii").strip() if kept.is_file() else "")
    if not hmac.compare_digest(_mark(secret), manifest.secret_key):
        raise BadBackup(
            "SECRET_KEY is not the one of this backup, and without it no token and no credential"
            " is of use: set it as it was"
            f"{', or unset it: the backup holds it' if ours and kept.is_file() else ''}."
        )


def _check_database(manifest: Manifest) -> psycopg.Connection:
    """Returns the connection to the database."""
    with connection.cursor() as cursor:
        cursor.execute(_ANYTHING)
        if cursor.fetchone()[0]:
            raise BadBackup("The database of DATABASE_URL holds tables already: name an empty one.")
    assert isinstance(connection.connection, psycopg.Connection)
    server = connection.connection
    if postgres.major_version(server) < manifest.server:
        raise BadBackup(
            f"The backup is of PostgreSQL {manifest.server}, and this server is"
            f" {postgres.major_version(server)}: restore it into one that is not older."
        )
    _check_role(manifest, server.info.user)
    return server


def _check_role(manifest: Manifest, user: str) -> None:
    if user != manifest.role:
        raise BadBackup(
            f"The tables of the backup belong to the user {manifest.role}, and this database has"
            f" {user}: name {manifest.role} in DATABASE_URL."
        )


def _put_files(source: Path, manifest: Manifest, data: Path) -> None:
    """Checkpoint signing keys that exist here already are newer, and are kept."""
    (data / "secret_key").unlink(missing_ok=True)
    for name in [file.name for file in manifest.files if _is_put(source, file.name, data)]:
        backup_files.copy_file(source / name, data / name)
    account = sandbox_account()
    for name in manifest.names("workspaces"):
        place = data / "workspaces" / Path(name).name.removesuffix(".tar.gz")
        account.make_directory(place, 0o755)
        backup_files.unpack(source / name, place, account, process_specs.interpreter())


def _is_put(source: Path, name: str, data: Path) -> bool:
    newer = Path(name).name.startswith(_OWN_KEYS) and (data / name).exists()
    top = Path(name).parts[0]
    wanted = top in _AS_FILES or top.startswith("service-")
    return wanted and not newer and (source / name).exists()


def _put_graphs(source: Path, data: Path) -> list[str]:
    if not (source / GRAPHS).is_file():
        return ["The backup holds no graphs: SPARQL_URL named another store."]
    if env_text("SPARQL_URL"):
        return [f"SPARQL_URL names another store: load {source / GRAPHS} there."]
    account = process_specs.knowledge(data).account
    with gzip.open(source / GRAPHS) as quads:
        parts = iter(lambda: quads.read(1 << 20), b"")
        oxigraph.load_graphs(data, parts, account=account, reach=process_specs.interpreter())
    return []


def _compared(manifest: Manifest, remarks: list[str]) -> Restored:
    lacking = verification_report.find_losses()
    missing = {loss.log for loss in lacking}
    halted = AuditLog.objects.filter(halted_at__isnull=False).exclude(name__in=missing)
    remarks += [f"{log.name}: {log.halted_reason}" for log in halted.order_by("name")]
    whole = AuditLog.objects.filter(halted_at=None).order_by("name")
    return Restored(manifest, [*whole.values_list("name", flat=True)], lacking, remarks)


@contextmanager
def _stores_of(data: Path) -> Iterator[None]:
    """PostgreSQL and Oxigraph run in this context: those that run already, or started for it."""
    if env_text("DATABASE_URL"):
        deployment.check_database(env_text("DATABASE_URL"))
        yield
        return
    if not (data / "postgres" / postgres.VERSION).exists():
        raise BackupFailed(f"There is no installation in {data}: is TOOLCRIB_DATA the right one?")
    if postgres.is_ready(embedded.socket_directory(data) / "database"):
        yield
        return
    with datadir.locked_directory(data), _started(data, knowledge=True):
        yield


@contextmanager
def _database_of(data: Path) -> Iterator[None]:
    if env_text("DATABASE_URL"):
        deployment.check_database(env_text("DATABASE_URL"))
        yield
        return
    with _started(data, knowledge=False):
        yield


@contextmanager
def _started(data: Path, *, knowledge: bool) -> Iterator[None]:
    with Supervisor(data) as servers:
        try:
            servers.start_soon(embedded.database_server(data))
            if knowledge and not env_text("SPARQL_URL"):
                servers.start_soon(process_specs.knowledge(data))
            servers.wait_until(servers.all_ready, by="PostgreSQL or Oxigraph")
            yield
        finally:
            database.close_connections()
    embedded.remove_socket_directory(data)
