"""`manage.py audit_retain`: run the daily retention of evidence now."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.records import retention

_OPTIONS = (("--days", "records"), ("--payload-days", "payloads"))


class Command(BaseCommand):
    help = (
        "Erases payloads and moves sealed records to files below DATA_DIR/audit-archive once they "
        "are older than the settings say. Goes on where an earlier run was interrupted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for option, kind in _OPTIONS:
            usual = settings.RETENTION_DAYS[kind]
            what = f"instead of {kind}={usual} of RETENTION_DAYS; 0 is for ever"
            parser.add_argument(option, type=int, default=usual, metavar="N", help=what)

    def handle(self, *args: Any, days: int, payload_days: int, **options: Any) -> None:
        if days < 0 or payload_days < 0:
            raise CommandError("A number of days is not negative; 0 is for ever.")
        try:
            done = retention.apply_retention(records_days=days, payload_days=payload_days)
        except retention.RetentionFailed as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write(
            f"{done['erased']} payloads erased, {done['archived']} records moved to files."
        )
