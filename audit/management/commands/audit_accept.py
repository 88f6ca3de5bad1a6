from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.management.operators import login, operator
from audit.publishing import Damaged, accept


class Command(BaseCommand):
    help = (
        "Let a halted audit log go on from what is there, after audit_verify was read. That it "
        "broke, and who accepted it why, stays in a record and in the anchors."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("log", help="The organization.")
        parser.add_argument("--reason", required=True, help="What happened, for who reads it later")
        parser.add_argument("--by", default="", help="Who accepts it; you, by your login name")

    def handle(self, *args: Any, log: str, reason: str, by: str, **options: Any) -> None:
        reason = reason.strip()
        if not reason:
            raise CommandError("Say what happened: --reason may not be empty.")
        try:
            person = replace(operator(log), kind="person", name=by or login())
            accept(name=log, by=person, reason=reason)
        except (LookupError, Damaged) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"The log {log} goes on from what is there. Its organization may execute."
        )
