"""What evidence itself can refuse."""

from django.db import DatabaseError


class Unwritable(DatabaseError):
    """A record cannot be written, so nothing of what it should tell may happen."""
