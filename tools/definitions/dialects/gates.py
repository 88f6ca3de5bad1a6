"""Rejects keys that look like access control of a tool (ruling 14)."""

import re

from tools.definitions.descriptors import canonical_key
from tools.definitions.services import RESERVED_KEYS

_ACCESS_KEY = re.compile(
    r"(?i)(tool|allowed|applicable|available)?[_.-]*(in)?[_.-]*(group|state)s?"
)


def is_reserved_key(key: str) -> bool:
    """Whether a key is one of a definition's own, or looks like one that grants access."""
    return canonical_key(key) in RESERVED_KEYS or bool(_ACCESS_KEY.fullmatch(key))
