"""`manage.py audit_export`: evidence as a file, with a signed manifest beside it."""

from datetime import UTC
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.export.export import FORMATS, export_file
from audit.management.operators import operator
from audit.records import record_search

_FILTERS = tuple(name for name in record_search.SEARCH_FIELDS if name != "agent")


class Command(BaseCommand):
    help = (
        "Writes the records of an organization, the oldest first, to FILE, and FILE.manifest with "
        "its SHA-256, size, count and range of indexes, signed as checkpoints are. That it was "
        "exported is on record."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--organization", default="default", metavar="O")
        parser.add_argument("--format", default="jsonl", choices=[*FORMATS])
        for name in _FILTERS:
            parser.add_argument(f"--{name}", default="", metavar=name[0].upper())

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        filters = {name: options[name] for name in _FILTERS}
        wanted = record_search.read_search(options["organization"], filters, zone=UTC)
        if wanted.flaws:
            raise CommandError("; ".join(f"--{name} {flaw}" for name, flaw in wanted.flaws.items()))
        try:
            by = operator(wanted.organization)
            count = export_file(wanted, options["format"], file.absolute(), by=by)
        except OSError as error:
            raise CommandError(f"{file} cannot be written: {error.strerror}.") from None
        self.stdout.write(f"{count} records in {file}, and {file.name}.manifest beside it.")
