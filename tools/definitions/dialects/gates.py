"""Rejects keys that look like access control of a tool (ruling 14)."""

import re

from tools.definitions.descriptors import canonical_key
from tools.definitions.services import RESERVED

_GATE = re.compile(r"(?i)(tool|allowed|applicable|available)?[_.-]*(in)?[_.-]*(group|state)s?")


def reserved(key: str) -> bool:
    """Whether a key is one of a definition's own, or looks like one that grants access."""
    return canonical_key(key) in RESERVED or bool(_GATE.fullmatch(key))
