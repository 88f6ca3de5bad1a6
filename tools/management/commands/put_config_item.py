"""`manage.py put_config_item`: create or change one item of a configuration."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.imports.catalog_import import import_items
from tools.definitions.dialects import import_documents, import_entries
from tools.definitions.dialects.import_entries import ImportItem
from tools.management import arguments, config_items
from tools.management.command import ToolcribCommand, operator
from tools.management.imports import STDIN, read_text, report_imports


class Command(ToolcribCommand):
    help = (
        "Puts an item under its key, such as tool/tell-joke or tool-service/joke-service: the "
        "descriptor is read from a file or from standard input, in JSON or YAML."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", type=config_items.parse_key, metavar="KEY")
        parser.add_argument("file", nargs="?", default=STDIN, metavar="FILE", help="default: -")
        arguments.add_organization(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        kind, name = options["key"]
        item = _item(f"{kind}/{name}", read_text(options["file"]))
        imported = import_items(
            organization=organization, items=[item], by=operator(organization.slug)
        )
        return report_imports(self, options, imported, [options["file"]], organization)


def _item(key: str, text: str) -> ImportItem:
    """Raises `Malformed` for what is not one document."""
    found = import_documents.parse_documents(text)
    if len(found) != 1:
        raise import_documents.unreadable_document("holds more than one item, or none")
    return import_entries.parse_item(key, found[0].value, found[0].lines)
