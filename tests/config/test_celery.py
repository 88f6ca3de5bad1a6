"""What a worker takes for a broker that is away, and outlives."""

import subprocess
import sys

from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ResponseError

from config.celery import app


def test_a_broker_that_may_not_write_is_one_that_is_away():
    with app.connection_for_read() as connection:
        assert {ResponseError, NoConnection} <= set(connection.recoverable_connection_errors)


def test_what_beat_loads_asks_no_database() -> None:
    """It has no access to one: its account may not open the server's socket."""
    program = """
from django.db.backends.base.base import BaseDatabaseWrapper
def connect(self):
    raise SystemExit("a database was asked")
BaseDatabaseWrapper.connect = connect
from config.celery import app
app.loader.import_default_modules()
print("loaded")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip().endswith("loaded"), done.stderr[-500:]
