"""`manage.py restore DIR`: restore a backup into an empty installation."""

import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tools.management import backups
from tools.management.backups import Restored


class Command(BaseCommand):
    help = (
        "Restores a backup into an empty data directory (TOOLCRIB_DATA) and database. Nothing may "
        "run there. Says what was published of each audit log later than the backup."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR")

    def handle(self, *args: str, directory: Path, **options: Any) -> None:
        began = time.monotonic()
        try:
            restored = backups.restore(directory.resolve())
        except backups.CANNOT as problem:
            self.stderr.write(f"The backup was not restored. {str(problem).strip()}")
            sys.exit(1)
        self.stdout.write("\n".join(_lines(restored, time.monotonic() - began)))


def _lines(restored: Restored, seconds: float) -> list[str]:
    manifest = restored.manifest
    lines = [
        f"Restored as it was at {manifest.moment}, {manifest.size:,} bytes, in {seconds:.1f} s.",
        f"{len(restored.logs)} audit logs hold all that was published of them.",
        *(f"{loss.says}." for loss in restored.losses),
        *restored.remarks,
        "Start it with manage.py up, then run manage.py audit_verify and manage.py verify_tools.",
    ]
    if restored.losses:
        lines += [
            "Nothing is executed for the organizations that lack records until that is accepted:",
            '  manage.py audit_accept --all --reason "why this backup was restored"',
        ]
    return lines
