"""Errors that evidence raises."""

from django.db import DatabaseError


class Unwritable(DatabaseError):
    """A record cannot be written, so the action it should record must not happen."""


class AuditFlaw(ValueError):
    """An invalid value that a user gave; the text is for the user, and says what is valid."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field
