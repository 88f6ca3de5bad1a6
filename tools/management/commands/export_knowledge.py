"""`manage.py export_knowledge`: export the organization's knowledge graph as Turtle or JSON-LD."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.knowledge_graphs import export_graph
from tools.knowledge.graph_documents import Syntax
from tools.management import arguments
from tools.management.command import DONE, ToolcribCommand


class Command(ToolcribCommand):
    help = "Prints every statement of the organization's graph; import_knowledge reads it again."

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        arguments.add_graph(parser)

    def perform(self, options: dict[str, Any]) -> int:
        syntax = Syntax(options["format"])
        with export_graph(
            organization=arguments.find_organization(options["organization"]),
            syntax=syntax,
            collection=options["collection"],
        ) as written:
            found = written.read().decode()
        self.answer(options, {"format": str(syntax), "content": found}, found.rstrip("\n"))
        return DONE
