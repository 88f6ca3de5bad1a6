"""`manage.py get_config_item`: print one item of a configuration, as `put_config_item` reads it."""

from typing import Any

from django.core.management.base import CommandParser

from tools.management import agents, arguments, config_items
from tools.management.command import DONE, ToolcribCommand, json_text


class Command(ToolcribCommand):
    help = "Prints the item under a key, such as tool/tell-joke, as JSON."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", type=config_items.key, metavar="KEY")
        arguments.add_organization(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = agents.find_organization(options["organization"])
        value = config_items.value_of(config_items.find(organization, *options["key"]))
        self.answer(options, value, json_text(value))
        return DONE
