"""Tools that ask or change the knowledge graph."""

from typing import Any

from tools.definitions.fields import Fields


def read(fields: Fields, _definition: Fields) -> dict[str, Any]:
    fields.known(("collection", "limit"))
    return {
        "collection": fields.text("collection", "") or None,
        "limit": fields.integer("limit", None, least=1, most=10_000),
    }
