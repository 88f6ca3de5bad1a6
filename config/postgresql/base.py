"""Django's PostgreSQL with what it does not know of JSON numbers and of partitions.

The type `jsonb` keeps digits and no exponent: what is written as `1e+22` is read back as a whole
number, which no request may hold. Written with a point it is read back as it was."""

import json
import re
from typing import Any

from django.db.backends.postgresql import base, introspection, operations
from psycopg import RawCursor
from psycopg.types.json import Jsonb

# A text of JSON is passed over whole. Only from 1e16 on does a number have such an exponent.
_LARGE = re.compile(r'"(?:[^"\\]++|\\.)*+"|-?[0-9]++(?:\.[0-9]++)?e\+[0-9]++')

_OF_PARTITIONS = """
    SELECT o.conname FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid
    WHERE c.relname = %s AND pg_table_is_visible(c.oid) AND o.contype = 'f' AND o.conparentid <> 0
"""


class DatabaseOperations(operations.DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> Any:
        """A statement with numbered parameters is shown as it is."""
        if isinstance(cursor, RawCursor):
            return sql
        return super().last_executed_query(cursor, sql, params)

    def adapt_json_value(self, value: Any, encoder: type[json.JSONEncoder] | None) -> Any:
        return Jsonb(value, dumps=lambda document: encode_json(document, encoder))


class DatabaseIntrospection(introspection.DatabaseIntrospection):
    def get_constraints(self, cursor: Any, table_name: str) -> dict[str, Any]:
        """Without those that PostgreSQL made of a foreign key for each partition of the table it
        refers to: they go with the key that was declared."""
        found: dict[str, Any] = super().get_constraints(cursor, table_name)
        cursor.execute(_OF_PARTITIONS, [table_name])
        of_partitions = {name for (name,) in cursor.fetchall()}
        return {name: one for name, one in found.items() if name not in of_partitions}


class DatabaseWrapper(base.DatabaseWrapper):
    introspection_class = DatabaseIntrospection
    ops_class = DatabaseOperations


def encode_json(value: Any, encoder: type[json.JSONEncoder] | None = None) -> str:
    """As JSON, with no exponent in a number that is large."""
    text = json.dumps(value, cls=encoder)
    return _LARGE.sub(_with_point, text) if "e+" in text else text


def _with_point(found: re.Match[str]) -> str:
    text = found.group()
    return text if text.startswith('"') else f"{float(text):.1f}"
