"""What a worker takes for a broker that is away, and outlives."""

from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ResponseError

from config.celery import app


def test_a_broker_that_may_not_write_is_one_that_is_away():
    with app.connection_for_read() as connection:
        assert {ResponseError, NoConnection} <= set(connection.recoverable_connection_errors)
