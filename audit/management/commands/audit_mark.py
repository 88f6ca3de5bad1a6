"""`manage.py audit_mark`: print the redaction marker of a secret, to find where it was used."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.actions import redactor_of

_LONGEST = 100_000


class Command(BaseCommand):
    help = (
        "Reads a suspected secret from standard input, never from the command line, and prints the "
        "mark that stands in an organization's evidence wherever it was taken out. Search for it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", default="default", metavar="O")

    def handle(self, *_: Any, **options: Any) -> None:
        secret = sys.stdin.read(_LONGEST).rstrip("\r\n")
        if not secret:
            raise CommandError("Give the secret on standard input.")
        self.stdout.write(redactor_of(options["organization"]).mark(secret))
