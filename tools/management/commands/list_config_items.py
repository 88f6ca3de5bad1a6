"""`manage.py list_config_items`: print the key of every configuration item."""

from typing import Any

from django.core.management.base import CommandParser

from tools.management import arguments, config_items
from tools.management.command import DONE, ToolcribCommand


class Command(ToolcribCommand):
    help = "Lists the keys of an organization's tools, tool services and MCP servers."

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)

    def perform(self, options: dict[str, Any]) -> int:
        keys = config_items.list_keys(arguments.find_organization(options["organization"]))
        self.answer(options, {"results": keys}, "\n".join(keys) or "No items.")
        return DONE
