"""Checks regular expressions for features that the linear-time engine does not have, such as
look-around and back-references. Also read inside the sandbox: it needs the standard library alone.
"""

import re

# Escapes and classes are skipped as a whole.
_UNSUPPORTED = re.compile(
    r"\\(?P<back>[1-9]|k<)|\\.|\[\^?\]?(?:[^\]\\]++|\\.)*+\]|(?P<look>\(\?<?[=!])", re.DOTALL
)


def unsupported_feature(pattern: str) -> str | None:
    """The unsupported feature of a pattern, in words; None where none is found."""
    for found in _UNSUPPORTED.finditer(pattern):
        if found["look"]:
            kind = "lookbehind" if "<" in found["look"] else "lookahead"
            return f"uses a {kind}, {found['look']}…): look-around is not supported"
        if found["back"]:
            return "refers back to a group: back-references are not supported"
    return None
