"""Database fields and functions of evidence that Django lacks."""

import json
from typing import Any

from django.db import models
from django.db.models import Func

from audit import canonical


class ClockTimestamp(Func):
    """The database's clock at the moment of the statement, not of the transaction's beginning."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


class CanonicalJSONField(models.JSONField):
    """JSON that keeps its exact text, which is what was hashed; `jsonb` would rewrite it."""

    def db_type(self, connection: Any) -> str:
        return "json"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return canonical.dumps(value).decode() if isinstance(value, dict | list) else value

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value


class TransactionIdField(models.Field):
    """The id of the transaction that wrote the row (`xid8`), which never wraps around."""

    def db_type(self, connection: Any) -> str:
        return "xid8"


class TransactionId(Func):
    function = "pg_current_xact_id"
    output_field = TransactionIdField()
