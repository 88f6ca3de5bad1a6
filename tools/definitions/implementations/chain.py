"""Chains as tools: the implementation is the chain itself."""

from typing import Any

from tools.definitions.chains import document
from tools.definitions.fields import DefinitionFields
from tools.definitions.vocabulary import Delivery


def read_chain(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.known(("chain",))
    if definition.raw.get("delivery") not in (None, Delivery.IDEMPOTENT):
        definition.wrong(
            "delivery", "of a chain is idempotent: each of its calls has a delivery of its own"
        )
    return {
        "chain": document.parse_chain(
            fields.raw.get("chain"), fields.flaws, f"{fields.prefix}chain."
        )
    }
