"""Recover after PostgreSQL went away: all its pooled connections are dead, not just one."""

from django.db import IntegrityError, InterfaceError, OperationalError, connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg import errors as postgres
from psycopg_pool import PoolTimeout

from audit.errors import Unwritable

CONNECTION_ERRORS = (OperationalError, InterfaceError, PoolTimeout, Unwritable)
_CONFLICT_ERRORS = (postgres.UniqueViolation, postgres.ForeignKeyViolation)


def is_conflict(error: Exception) -> bool:
    """Whether it is a conflict between concurrent writers. Any other violated constraint is a fault
    of ours."""
    return isinstance(error, IntegrityError) and isinstance(error.__cause__, _CONFLICT_ERRORS)


def replace_dead_connections() -> None:
    """After a call failed: discard every broken connection, so that the next call gets none."""
    connection.close()
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.check()


def close_connections() -> None:
    """Of a process that has no more to ask for now, or will fork: a pool does not come along, and
    one that waits would only complain of every restart."""
    for wrapper in connections.all(initialized_only=True):
        if isinstance(wrapper, DatabaseWrapper):
            wrapper.close()
            wrapper.close_pool()
