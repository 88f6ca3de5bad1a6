"""`manage.py backup DIR`: back up an installation as of one moment, while calls run."""

import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tools.management import backups


class Command(BaseCommand):
    help = (
        "Writes a backup of the whole installation into a directory that is new or empty: the "
        "database, keys, workspaces, graphs, archived evidence and anchors. Calls go on meanwhile."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR")

    def handle(self, *args: str, directory: Path, **options: Any) -> None:
        began = time.monotonic()
        try:
            manifest = backups.back_up(directory.resolve())
        except backups.CANNOT as problem:
            self.stderr.write(f"There is no backup. {str(problem).strip()}")
            sys.exit(1)
        seconds = time.monotonic() - began
        records = sum(log.size for log in manifest.logs)
        lines = [
            f"{directory} holds everything as it was at {manifest.moment}:",
            f"  {manifest.size:,} bytes in {len(manifest.files)} files, after {seconds:.1f} s;",
            f"  {len(manifest.logs)} audit logs with {records:,} records.",
            *(f"Remark: {remark}." for remark in manifest.remarks),
            "Not in it:",
            *(f"  {what};" for what in manifest.left_out),
            "It holds every key and secret: keep it where only you can read it.",
        ]
        self.stdout.write("\n".join(lines))
