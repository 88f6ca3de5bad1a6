"""Changes that require direct access to the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.db import connection, transaction
from psycopg.types.json import Jsonb

from tools.models import Organization, ToolVersion


def tamper(version: ToolVersion, **fields: Any) -> None:
    """Change a stored definition in spite of the trigger; digest and signature stay."""
    overwrite(version, version.definition | fields)


def overwrite(version: ToolVersion, definition: object) -> None:
    """Replace the definition in the same way."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE tools_toolversion DISABLE TRIGGER tool_version_never_changes")
        cursor.execute(
            "UPDATE tools_toolversion SET definition = %s WHERE id = %s",
            [Jsonb(definition), version.pk],
        )
        cursor.execute("ALTER TABLE tools_toolversion ENABLE TRIGGER tool_version_never_changes")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


@contextmanager
def no_evidence_for(organization: Organization) -> Iterator[None]:
    """Meanwhile no audit record of the organization can be written."""
    with _refusing("INSERT ON audit_auditrecord", f"NEW.organization = '{organization.slug}'"):
        yield


@contextmanager
def no_lease_for(organization: Organization) -> Iterator[None]:
    """Meanwhile no lease of the organization's executions can be renewed."""
    renewed = "NEW.lease_until > OLD.lease_until AND NEW.status = OLD.status"
    whose = f"NEW.organization_id = '{organization.pk}'"
    with _refusing("UPDATE ON tools_execution", f"{renewed} AND {whose}"):
        yield


@contextmanager
def no_transition_for(organization: Organization) -> Iterator[None]:
    """Meanwhile each state transition of the organization fails with an internal error."""
    whose = f"NEW.organization_id = '{organization.pk}'"
    with _refusing("INSERT ON tools_statetransition", whose, "restrict_violation"):
        yield


@contextmanager
def _refusing(deed: str, condition: str, code: str = "disk_full") -> Iterator[None]:
    name = f"refuse_{uuid4().hex[:12]}"
    table = deed.rpartition(" ")[2]
    _do(
        f"""
        CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'refused for a test' USING ERRCODE = '{code}'; END $$;
        CREATE TRIGGER {name} BEFORE {deed} FOR EACH ROW WHEN ({condition})
        EXECUTE FUNCTION {name}();
        """
    )
    try:
        yield
    finally:
        _do(f"DROP TRIGGER {name} ON {table}; DROP FUNCTION {name}()")


def _do(statements: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statements)
