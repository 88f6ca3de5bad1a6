"""`manage.py import_knowledge`: import Turtle or JSON-LD into the organization's own graph."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.knowledge_graphs import import_graph
from tools.errors import Malformed
from tools.knowledge.graph_documents import MOST_BYTES, Syntax
from tools.management import arguments
from tools.management.command import DONE, ToolcribCommand, operator


class Command(ToolcribCommand):
    help = "Adds every statement of a document to the organization's graph, or none."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        arguments.add_organization(parser)
        arguments.add_graph(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        done = import_graph(
            organization=organization,
            data=_content(options["file"]),
            syntax=Syntax(options["format"]),
            collection=options["collection"],
            by=operator(organization.slug),
        )
        text = f"{done.count} statements are in the graph."
        self.answer(options, {"statements": done.count}, text)
        return DONE


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise Malformed(f"{file} cannot be read: {error.strerror}.") from None
