"""`manage.py delete_config_item`: delete an item of the configuration."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.actions import delete_tool
from tools.catalog.imports.import_results import delete_source
from tools.management import arguments, config_items
from tools.management.command import DONE, ToolcribCommand, operator
from tools.models import Tool


class Command(ToolcribCommand):
    help = "Deletes the item under a key. A service or server that tools name is kept."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", type=config_items.parse_key, metavar="KEY")
        arguments.add_organization(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization, (kind, name) = (
            arguments.find_organization(options["organization"]),
            options["key"],
        )
        row, by = config_items.find_item(organization, kind, name), operator(organization.slug)
        if isinstance(row, Tool):
            delete_tool(tool=row, by=by)
        else:
            delete_source(row=row, by=by)
        self.answer(options, {"deleted": f"{kind}/{name}"}, f"Deleted {kind}/{name}.")
        return DONE
