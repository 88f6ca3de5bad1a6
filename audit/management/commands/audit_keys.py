from typing import Any

from django.core.management.base import BaseCommand

from audit.publishing import public_keys


class Command(BaseCommand):
    help = (
        "Print the public keys that sign checkpoints or did, one a line, as readers of signed "
        "notes take them, each log's newest first. They come from the key files, not from the "
        "database."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        for line in public_keys():
            self.stdout.write(line)
