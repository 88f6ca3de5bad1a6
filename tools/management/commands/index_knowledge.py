"""`manage.py index_knowledge`: rebuild the full-text search index of a knowledge graph."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.knowledge_graphs import index_graph
from tools.management import arguments
from tools.management.command import DONE, ToolcribCommand


class Command(ToolcribCommand):
    help = (
        "Reads an organization's graph again, so that search_knowledge finds what others wrote to "
        "its endpoint. Safe while it is in use."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        parser.add_argument("--collection", type=arguments.parse_slug, metavar="C")

    def perform(self, options: dict[str, Any]) -> int:
        found = index_graph(
            organization=arguments.find_organization(options["organization"]),
            collection=options["collection"],
            tell=lambda read: self.stderr.write(f"{read} subjects read"),
        )
        self.answer(options, {"entities": found}, f"{found} entities are indexed.")
        return DONE
