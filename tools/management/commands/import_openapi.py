"""`manage.py import_openapi`: import tools from an OpenAPI document, after a preview."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.imports.import_results import CREATED, UPDATED
from tools.catalog.imports.openapi_import import Row, import_openapi
from tools.definitions.dialects import import_documents
from tools.errors import Malformed, TooLarge
from tools.management import arguments
from tools.management.command import DONE, FAILED, ToolcribCommand, format_flaw, operator
from tools.management.imports import lint_tools


class Command(ToolcribCommand):
    help = (
        "Makes each operation of an OpenAPI 3.0 or 3.1 document a tool, or brings the tool up to "
        "date. Exit code 1 when one of them is refused."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="JSON or YAML; - reads standard input")
        arguments.add_organization(parser)
        parser.add_argument(
            "--pick", action="extend", nargs="+", default=[], metavar="OPERATION",
            help="operations by id, or as 'GET /path'; absent: all that are not deprecated",
        )  # fmt: skip
        parser.add_argument(
            "--group", action="extend", nargs="+", metavar="G", help="groups of the tools"
        )
        parser.add_argument("--server", metavar="URL", help="in place of the document's own")
        parser.add_argument(
            "--server-variable", action="append", default=[], metavar="NAME=VALUE", type=pair,
            help="a variable in the address of the document's server",
        )  # fmt: skip
        parser.add_argument(
            "--credential", action="append", default=[], metavar="SCHEME=NAME", type=pair,
            help="our credential for one of the document's security schemes",
        )  # fmt: skip
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        rows = import_openapi(
            organization=organization,
            document=read_document(options["file"]),
            pick=options["pick"],
            group=options["group"],
            server=options["server"],
            variables=dict(options["server_variable"]),
            credentials=dict(options["credential"]),
            by=operator(organization.slug),
            dry_run=options["dry_run"],
        )
        saved = [row["name"] for row in rows if row["result"] in {CREATED, UPDATED}]
        found = {} if options["dry_run"] else lint_tools(organization, saved)
        rows = [row | {"findings": found.get(row["name"], [])} for row in rows]
        self.answer(options, {"items": rows}, _format_report(rows))
        return FAILED if any(row["result"] == "refused" for row in rows) else DONE


def pair(text: str) -> tuple[str, str]:
    scheme, equals, name = text.partition("=")
    if not (scheme and equals and name):
        raise ValueError(text)
    return scheme, name


def read_document(name: str) -> Any:
    """Raises `Malformed`."""
    try:
        raw = (
            sys.stdin.buffer.read(import_documents.MAX_BYTES + 1)
            if name == "-"
            else _read_start(Path(name))
        )
    except OSError as error:
        raise Malformed(f"{name} cannot be read: {error.strerror}.") from None
    try:
        found = import_documents.parse_documents(
            import_documents.decode_document(raw), openapi=True
        )
    except (Malformed, TooLarge) as error:
        raise Malformed(f"{name}: {error.message}") from None
    if len(found) != 1:
        raise Malformed(f"{name} holds {len(found)} documents; give one.")
    return found[0].value


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(import_documents.MAX_BYTES + 1)


def _format_report(rows: list[Row]) -> str:
    counts = Counter(row["result"] for row in rows)
    said = ", ".join(f"{count} {result}" for result, count in counts.items()) or "no operations"
    return "\n".join([*map(_paragraph, rows), f"{said}."])


def _paragraph(row: Row) -> str:
    lines = [f"{row['result']:<10}{row['name'] or '-'}  ({row['key']})"]
    lines += [f"    {error['field'] or 'tool'} {error['message']}" for error in row["errors"]]
    lines += [f"    changes {change['field']}" for change in row["changes"]]
    lines += [f"    {note}" for note in row["notes"]]
    lines += [f"    {format_flaw(found)}" for found in row["findings"]]
    return "\n".join(lines)
