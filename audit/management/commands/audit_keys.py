from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from audit.log.checkpoint_publication import manifest_keys, public_keys


class Command(BaseCommand):
    help = (
        "Print the public keys that sign checkpoints or did, one a line, as readers of signed "
        "notes take them, each log's newest first. They come from the key files, not from the "
        "database."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--manifests",
            action="store_true",
            help="those that sign manifests of exports and archives instead",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for line in manifest_keys() if options["manifests"] else public_keys():
            self.stdout.write(line)
