"""Knowledge graph tools: which collection, and how many results at once."""

import re
from typing import Any

from tools.definitions.fields import DefinitionFields

MOST_ROWS = 10_000
COLLECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def read_knowledge_query(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    definition.need_parameter("question")
    return _read_graph(fields)


def read_graph_update(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    definition.need_parameter("triples")
    return _read_graph(fields)


def _read_graph(fields: DefinitionFields) -> dict[str, Any]:
    fields.known(("collection", "limit"))
    collection = fields.raw.get("collection")
    if collection is not None and not (
        isinstance(collection, str) and COLLECTION.fullmatch(collection)
    ):
        fields.wrong("collection", "may hold only letters, digits, '_', '.' and '-', at most 100")
        collection = None
    return {
        "collection": collection,
        "limit": fields.integer("limit", None, least=1, most=MOST_ROWS),
    }
