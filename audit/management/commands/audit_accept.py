from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.log.checkpoint_publication import LogDamaged, accept_break
from audit.management.operators import operator, operator_login
from audit.models import AuditLog
from audit.verification.verification_report import find_loss


class Command(BaseCommand):
    help = (
        "Let a halted audit log go on from what is there, after audit_verify was read; with --all "
        "every one that is halted, as after a restore. That it broke, and who accepted it why, "
        "stays in a record and in the anchors."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("log", nargs="?", help="The organization.")
        which.add_argument("--all", action="store_true", help="Every log that is halted")
        parser.add_argument("--reason", required=True, help="What happened, for who reads it later")
        parser.add_argument("--by", default="", help="Who accepts it; you, by your login name")

    def handle(self, *args: Any, log: str | None, reason: str, by: str, **options: Any) -> None:
        reason = reason.strip()
        if not reason:
            raise CommandError("Say what happened: --reason may not be empty.")
        if log is not None:
            self._accept(log, reason, by)
            return
        halted = AuditLog.objects.filter(halted_at__isnull=False).order_by("name")
        names, problems = [*halted.values_list("name", flat=True)], list[str]()
        for name in names:
            try:
                self._accept(name, reason, by)
            except CommandError as problem:
                problems.append(str(problem))
        if problems:
            raise CommandError("\n".join(problems))
        if not names:
            self.stdout.write("No log is halted.")

    def _accept(self, log: str, reason: str, by: str) -> None:
        found = AuditLog.objects.filter(name=log).first()
        loss = find_loss(found) if found is not None else None
        try:
            person = replace(operator(log), kind="person", name=by or operator_login())
            accept_break(name=log, by=person, reason=reason)
        except (LookupError, LogDamaged) as error:
            raise CommandError(str(error)) from None
        if loss is not None:
            self.stdout.write(f"{loss.says}.")
        self.stdout.write(
            f"The log {log} goes on from what is there. Its organization may execute."
        )
