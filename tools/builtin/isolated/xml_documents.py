"""XML held against an XML Schema, or read only. Runs inside the sandbox.

No document type declaration is read, so there are no entities; a schema fetches no other.
"""

import re
from typing import Any

from lxml import etree
from toolcrib import ToolError

_XSD = "{http://www.w3.org/2001/XMLSchema}"
_ELSEWHERE = frozenset({f"{_XSD}include", f"{_XSD}import", f"{_XSD}redefine", f"{_XSD}override"})
_DECLARED = re.compile(r"\s*<\?xml\b[^>]*?>")

type Flaw = dict[str, object]


def schema_of(text: str) -> Any:
    """Raises ToolError."""
    try:
        document = _read(text)
    except etree.XMLSyntaxError as error:
        raise ToolError("SCHEMA_INVALID", f"line {error.lineno}: {error.msg}"[:400]) from None
    for element in document.iter(*_ELSEWHERE):
        if element.get("schemaLocation") is not None:
            raise ToolError(
                "SCHEMA_INVALID",
                f"line {element.sourceline}: the schema names another document; none is fetched.",
            )
    try:
        return etree.XMLSchema(document)
    except etree.XMLSchemaParseError as error:
        raise ToolError("SCHEMA_INVALID", str(error)[:400]) from None


def flaws(text: str, schema: Any | None) -> list[Flaw]:
    """What makes it no XML, or what the schema does not allow."""
    try:
        document = _read(text)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        return [_flaw("/", line, column or None, f"not XML: {error.msg}")]
    if schema is None or schema.validate(document):
        return []
    return [
        _flaw(error.path or "/", error.line, error.column or None, error.message)
        for error in schema.error_log
    ]


def _read(text: str) -> Any:
    """Raises XMLSyntaxError; also for a document type declaration."""
    # The text is decoded already: what it says of its encoding is of yesterday.
    declared = _DECLARED.match(text)
    body = text[declared.end() :] if declared else text
    skipped = text[: declared.end()].count("\n") if declared else 0
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, encoding="utf-8"
    )
    document = etree.fromstring("\n" * skipped + body if skipped else body, parser)
    tree = document.getroottree()
    if tree.docinfo.doctype:
        raise etree.XMLSyntaxError("a document type declaration is not allowed", 0, 1, 1)
    return tree


def _flaw(path: str, line: int, column: int | None, message: str) -> Flaw:
    return {"path": path, "line": line, "column": column, "message": message[:500]}
