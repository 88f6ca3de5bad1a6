"""Checks that a name is free by the row's unique constraint at insertion, so that of two concurrent
requests one fails."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, transaction
from psycopg import errors as postgres

from tools.errors import Conflict


@contextmanager
def unique(message: str, *, code: str) -> Iterator[None]:
    """Raises `Conflict` where another row has the name. The open transaction continues."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if isinstance(error.__cause__, postgres.UniqueViolation):
            raise Conflict(message, code=code) from None
        raise
