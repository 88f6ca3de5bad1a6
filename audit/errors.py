"""Errors that evidence raises."""

from django.db import DatabaseError


class Unwritable(DatabaseError):
    """A record cannot be written, so the action it should record must not happen."""
