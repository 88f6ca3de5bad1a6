"""Database errors are mapped to 4xx for the caller's faults, 503 for transient ones, and 500 for
bugs."""

import json

import pytest
from django.db import DatabaseError, connection, transaction
from django.http import HttpResponse

from config.middleware import DatabaseErrors
from tools.api.common.errors import answer

TABLE = """CREATE TEMPORARY TABLE one (
    id int PRIMARY KEY, small int CHECK (small < 10), above int REFERENCES one (id)
) ON COMMIT DROP; INSERT INTO one VALUES (1, 1, NULL);"""
CASES = {
    "INSERT INTO one VALUES (1, 1, NULL)": (409, "conflict"),
    "INSERT INTO one VALUES (2, 2, 7)": (409, "conflict"),
    "SELECT 'x'::int": (400, "malformed"),
    "SELECT 10::numeric / 0": (400, "malformed"),
    "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)": (503, "unavailable"),
    **{
        f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$": (503, "unavailable")
        for state in ("40P01", "40001", "55P03", "53300", "53400", "57P01", "57P03", "08006")
    },
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
    assert status != 503 or response["Retry-After"] == "1"


@pytest.mark.parametrize("sql", CASES)
def test_a_page_says_so_too(db, rf, sql):
    status, _ = CASES[sql]
    page = DatabaseErrors(lambda request: HttpResponse())
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        response = page.process_exception(rf.get("/groups/"), _raised(cursor, sql))
    assert (response and response.status_code) == status
    assert status != 503 or response["Retry-After"] == "1"


def _raised(cursor, sql):
    try:
        with transaction.atomic():
            cursor.execute(sql)
    except DatabaseError as error:
        return error
    raise AssertionError("nothing was raised")
