"""What to do when PostgreSQL went away: its pooled connections are all dead, not just one."""

from django.db import InterfaceError, OperationalError, connection
from psycopg_pool import PoolTimeout

GONE = (OperationalError, InterfaceError, PoolTimeout)


def replace_dead_connections() -> None:
    """After a call failed: throw out every broken connection, so that the next call meets none."""
    connection.close()
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.check()
