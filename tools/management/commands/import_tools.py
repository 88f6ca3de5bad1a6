"""`manage.py import_tools`: import tools, services and servers from files, in any dialect."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.imports.catalog_import import ImportOptions, import_items
from tools.definitions.dialects import import_entries
from tools.definitions.dialects.import_entries import ImportItem, ImportSelection, ImportSource
from tools.management import arguments
from tools.management.command import ToolcribCommand, operator
from tools.management.imports import list_files, read_items, report_imports


class Command(ToolcribCommand):
    help = (
        "Imports tools, tool services and MCP servers: TrustGraph items, definitions in JSON or "
        "YAML, a server's list of tools, configuration files of desktop clients, OpenAPI. Exit "
        "code 1 when an item was refused; the others are imported all the same, unless --atomic."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths", nargs="+", metavar="PATH", help="files, folders, or - for standard input"
        )
        arguments.add_organization(parser)
        parser.add_argument(
            "--source",
            choices=[str(one) for one in ImportSource],
            help="absent: what it looks like",
        )
        parser.add_argument("--server", default="", help="the MCP server of tools that name none")
        parser.add_argument(
            "--pick", action="extend", nargs="+", metavar="NAME", help="only these tools"
        )
        parser.add_argument(
            "--group", action="extend", nargs="*", metavar="G", help="of tools that name none"
        )
        parser.add_argument("--dry-run", action="store_true", help="say the same, write nothing")
        parser.add_argument("--atomic", action="store_true", help="all of it, or nothing")

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        found = list(_read_all_items(options))
        way = ImportOptions(
            group=arguments.requested_groups(options),
            server=options["server"],
            dry_run=options["dry_run"],
            atomic=options["atomic"],
        )
        imported = import_items(
            organization=organization,
            items=import_entries.limit_items(item for item, _ in found),
            by=operator(organization.slug),
            way=way,
        )
        return report_imports(self, options, imported, [place for _, place in found], organization)


def _read_all_items(options: dict[str, Any]) -> list[tuple[ImportItem, str]]:
    """Every item with its file."""
    source = ImportSource(options["source"]) if options["source"] else None
    choice = ImportSelection(options["server"], tuple(options["pick"] or ()))
    return [
        (item, file)
        for path in options["paths"]
        for file in list_files(path)
        for item in read_items(file, source, choice)
    ]
