"""What PostgreSQL says is the caller's, passing, or a fault of ours; only the last is a 500."""

import json

import pytest
from django.db import DatabaseError, connection, transaction

from tools.api.errors import answer

TABLE = """CREATE TEMPORARY TABLE one (
    id int PRIMARY KEY, small int CHECK (small < 10), above int REFERENCES one (id)
) ON COMMIT DROP; INSERT INTO one VALUES (1, 1, NULL);"""
CASES = {
    "INSERT INTO one VALUES (1, 1, NULL)": (409, "conflict"),
    "INSERT INTO one VALUES (2, 2, 7)": (409, "conflict"),
    "SELECT 'x'::int": (400, "malformed"),
    "SELECT 10::numeric / 0": (400, "malformed"),
    "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)": (503, "unavailable"),
    "INSERT INTO one VALUES (2, 20, NULL)": (None, ""),
    "INSERT INTO one (id) VALUES (NULL)": (None, ""),
    "SELECT nothing FROM one": (None, ""),
}


@pytest.mark.parametrize("sql", CASES)
def test_an_error_of_the_database_is_answered_by_whose_fault_it_is(db, sql):
    status, code = CASES[sql]
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        response = answer(_raised(cursor, sql), {})
    assert (response and response.status_code) == status
    assert response is None or json.loads(response.content)["code"] == code


def _raised(cursor, sql):
    try:
        with transaction.atomic():
            cursor.execute(sql)
    except DatabaseError as error:
        return error
    raise AssertionError("nothing was raised")
