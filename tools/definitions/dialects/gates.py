"""Keys that look as if they said who may use a tool, and when (ruling 14)."""

import re

from tools.definitions.descriptors import canonical_key
from tools.definitions.services import RESERVED

_GATE = re.compile(r"(?i)(tool|allowed|applicable|available)?[_.-]*(in)?[_.-]*(group|state)s?")


def reserved(key: str) -> bool:
    """Whether a key is one of a definition's own, or could be meant for one that opens it."""
    return canonical_key(key) in RESERVED or bool(_GATE.fullmatch(key))
