"""`manage.py export_tools`: export the catalog in a format that `import_tools` reads."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.imports.catalog_export import CatalogExportFormat, exported
from tools.management import arguments
from tools.management.command import DONE, FAILED, ToolcribCommand, format_json


class Command(ToolcribCommand):
    help = (
        "Prints every custom tool, and the services they name. Exit code 1 when a tool was left "
        "out because its stored version is not what was signed."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        parser.add_argument(
            "--format",
            choices=[str(one) for one in CatalogExportFormat],
            default=str(CatalogExportFormat.DEFINITIONS),
        )

    def perform(self, options: dict[str, Any]) -> int:
        found = exported(arguments.find_organization(options["organization"]))
        document: Any = found.document
        if options["format"] == CatalogExportFormat.TRUSTGRAPH:
            document = {"items": found.items(), "left_out": found.left_out}
        plain = options["format"] == CatalogExportFormat.YAML
        self.answer(options, document, found.yaml() if plain else format_json(document))
        for name in found.left_out:
            self.stderr.write(f"{name} was left out: its stored version is not what was signed.")
        return FAILED if found.left_out else DONE
