"""Reading of descriptors from files, and reports of imports, for the commands that import."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.catalog.imports.import_results import CREATED, REFUSED, UPDATED, ItemImportResult
from tools.catalog.registry import registry
from tools.definitions.dialects import import_documents, import_entries
from tools.definitions.dialects.import_documents import MAX_BYTES, ImportDocument
from tools.definitions.dialects.import_entries import (
    ImportItem,
    ImportItemKind,
    ImportSelection,
    ImportSource,
)
from tools.errors import Malformed, NotFound
from tools.insight.workflow_findings import findings
from tools.management.command import (
    DONE,
    FAILED,
    ToolcribCommand,
    format_flaw,
    format_table,
    write_text,
)
from tools.models import Organization

STDIN = "-"
SUFFIXES = frozenset({".json", ".yaml", ".yml"})


def read_text(place: str) -> str:
    """The text of a file, or of standard input. Raises `NotFound`, `Malformed`."""
    if place == STDIN:
        return import_documents.decode_document(sys.stdin.buffer.read(MAX_BYTES + 1))
    try:
        with Path(place).open("rb") as file:
            return import_documents.decode_document(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise NotFound(f"{place} cannot be read: {error.strerror}.", code="no_file") from None


def list_files(place: str) -> list[str]:
    """The files of a directory and its subdirectories, by name; a file or `-` is itself."""
    folder = Path(place)
    if place == STDIN or not folder.is_dir():
        return [place]
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    shown = [path for path in found if not _is_hidden(path.relative_to(folder)) and path.is_file()]
    if not shown:
        raise NotFound(f"There is no JSON or YAML file in {place}.", code="no_file")
    return [str(path) for path in shown]


def read_items(
    place: str, source: ImportSource | None, choice: ImportSelection
) -> list[ImportItem]:
    """The items of a file; one item with the error where the file cannot be parsed."""
    try:
        return [
            item
            for document in import_documents.parse_documents(read_text(place))
            for item in _split_documents(document, place, source, choice)
        ]
    except (Malformed, NotFound) as error:
        return [ImportItem(None, place, None, flaw=error.message)]


def report_imports(
    command: ToolcribCommand,
    options: dict[str, Any],
    imported: list[ItemImportResult],
    places: list[str],
    organization: Organization,
) -> int:
    """Prints the result and the warnings of each item, and the errors on standard error. Returns
    the exit code."""
    if not options.get("dry_run"):
        add_lint(organization, imported)
    document = {"items": [one.as_dict() for one in imported]}
    rows = [(one.result.upper(), one.key, one.name) for one in imported]
    counts = Counter(one.result for one in imported)
    sums = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    shown = format_table(("RESULT", "KEY", "NAME"), rows) if rows else "Nothing to import."
    odd = [f"{one.key}: {format_flaw(found)}" for one in imported for found in one.findings]
    command.answer(options, document, "\n".join([shown, *([sums] if sums else []), *odd]))
    for one, place in zip(imported, places, strict=True):
        for flaw in one.errors:
            write_text(command.stderr, f"{place}: {one.key}: {format_flaw(flaw)}")
    return FAILED if counts[REFUSED] else DONE


def add_lint(organization: Organization, imported: list[ItemImportResult]) -> None:
    """Add the linter's findings for the tools that were written."""
    written = [
        one
        for one in imported
        if one.result in {CREATED, UPDATED} and one.key.startswith(f"{ImportItemKind.TOOL}/")
    ]
    found = lint_tools(organization, [one.name for one in written])
    for one in written:
        one.findings.extend(found[one.name])


def lint_tools(organization: Organization, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The linter's findings for these tools, in the format of an import's findings."""
    if not names:
        return {}
    revision = Organization.objects.get(pk=organization.pk).revision
    found = findings(registry.snapshot(organization.pk, revision))
    return {
        name: [
            {"code": finding.code, "field": "", "message": finding.message, "line": None}
            for finding in found
            if finding.concerns(name)
        ]
        for name in names
    }


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _split_documents(
    document: ImportDocument, place: str, source: ImportSource | None, choice: ImportSelection
) -> Iterator[ImportItem]:
    """In a directory named for a kind, such as `mcp`, each file is one item, named by its id."""
    path = Path(place)
    kind = path.parent.name
    found = source or import_entries.detect_source(document)
    alone = isinstance(document.value, dict) and found == ImportSource.DEFINITIONS
    if source is None and alone and kind in set(ImportItemKind):
        place = "id" if kind == ImportItemKind.SERVICE else "name"
        value = document.value | ({} if kind == ImportItemKind.SERVER else {place: path.stem})
        yield import_entries.parse_item(
            f"{kind}/{path.stem}", value | document.value, document.lines
        )
    else:
        yield from import_entries.split_document(document, found, choice)
