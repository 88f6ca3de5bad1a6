"""Evidence of its own, in a schema of its own, where transactions really commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

from audit.actions import Actor


@pytest.fixture
def place() -> str:
    """An organization's name."""
    return f"org-{uuid4().hex[:12]}"


@pytest.fixture
def actor(place: str) -> Actor:
    return Actor("person", "eve", place)


@pytest.fixture
def anchored(tmp_path: Path, settings: Any) -> Path:
    """Where anchors are kept, empty: those of an earlier test would speak of another log."""
    settings.ANCHORS_DIR = tmp_path / "anchors"
    return tmp_path / "anchors"


@pytest.fixture
def ledger(anchored: Path, django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """The tables of `audit` alone, empty; the running product does not see them. Its schema."""
    schema = f"ledger_{uuid4().hex[:12]}"
    options = connection.settings_dict["OPTIONS"]
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {schema}")
        _reconnect(options | {"options": f"-c search_path={schema}", "application_name": schema})
        _migrate()
        try:
            yield schema
        finally:
            _reconnect(options)
            with connection.cursor() as cursor:
                cursor.execute(f"DROP SCHEMA {schema} CASCADE")
            connection.close()


_statements: list[tuple[str, Any]] = []  # what migrating takes, in one process


def _migrate() -> None:
    """Django needs a second and a half to work out these statements, PostgreSQL a tenth of it."""
    if not _statements:
        executor = MigrationExecutor(connection)
        with connection.execute_wrapper(_keep):
            executor.migrate(executor.loader.graph.leaf_nodes("audit"))
        return
    with transaction.atomic(), connection.cursor() as cursor:
        for sql, parameters in _statements:
            cursor.execute(sql, parameters)


def _keep(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
    assert not many
    if not sql.lstrip().upper().startswith("SELECT"):
        _statements.append((sql, parameters))
    return execute(sql, parameters, many, context)


def _reconnect(options: dict[str, Any]) -> None:
    """With a new pool, so that connections of other threads have the options too."""
    connection.close()
    connection.close_pool()
    connection.settings_dict["OPTIONS"] = options
