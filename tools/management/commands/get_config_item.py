"""`manage.py get_config_item`: print one item of a configuration, as `put_config_item` reads it."""

from typing import Any

from django.core.management.base import CommandParser

from tools.management import arguments, config_items
from tools.management.command import DONE, ToolcribCommand, format_json


class Command(ToolcribCommand):
    help = "Prints the item under a key, such as tool/tell-joke, as JSON."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", type=config_items.parse_key, metavar="KEY")
        arguments.add_organization(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        value = config_items.item_value(config_items.find_item(organization, *options["key"]))
        self.answer(options, value, format_json(value))
        return DONE
