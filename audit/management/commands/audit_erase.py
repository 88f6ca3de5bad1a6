"""`manage.py audit_erase`: erase what went into or came out of calls; the records stay."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from audit.management.operators import operator
from audit.models import AuditRecord
from audit.records.erasure import ErasureScope, count_payloads, erase_payloads


class Command(BaseCommand):
    help = (
        "Erases payloads for good: of one execution, of an agent (with --organization), or of a "
        "whole organization (--all, with its slug again), whose key file is erased too, so that "
        "no backup of the database alone opens them. The records and their proofs stay good. On "
        "record, with the reason."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--execution", default="", metavar="ID")
        parser.add_argument("--agent", default="", metavar="SLUG")
        parser.add_argument("--organization", default="", metavar="SLUG")
        parser.add_argument(
            "--all", default="", metavar="SLUG", help="the organization's slug again: all its calls"
        )
        parser.add_argument("--dry-run", action="store_true", help="count, and erase nothing")
        parser.add_argument("--before", default="", metavar="TIME", help="only what is older")
        parser.add_argument("--reason", required=True, help="for who reads the record of it")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["reason"].strip():
            raise CommandError("Say why: --reason may not be empty.")
        scope = _scope(options)
        if options["dry_run"]:
            self.stdout.write(
                f"{count_payloads(scope)} payloads would be erased in {scope.organization}."
            )
            return
        done = erase_payloads(
            scope, by=operator(scope.organization), reason=options["reason"].strip()
        )
        self.stdout.write(f"{done} payloads erased in {scope.organization}.")


def _scope(options: dict[str, Any]) -> ErasureScope:
    before, organization = _moment(options["before"]), options["organization"]
    if options["execution"]:
        if options["agent"] or options["all"] or before:
            raise CommandError("--execution names one call; leave --agent, --all and --before out.")
        return _of_execution(options["execution"], organization)
    if not organization:
        raise CommandError("Name what to erase: --execution, or --organization with --agent or "
                           "--all.")  # fmt: skip
    if bool(options["agent"]) == bool(options["all"]):
        raise CommandError("Name exactly one of --agent and --all.")
    if options["all"] not in {"", organization}:
        raise CommandError(f"--all must repeat the organization: {organization[:60]}.")
    if not AuditRecord.objects.filter(organization=organization).exists():
        raise CommandError(f"There are no records of an organization {organization[:60]!r}.")
    return ErasureScope(organization, agent=options["agent"], before=before)


def _of_execution(text: str, organization: str) -> ErasureScope:
    try:
        identifier = UUID(text)
    except ValueError:
        raise CommandError("--execution is not an identifier.") from None
    records = AuditRecord.objects.filter(execution_id=identifier)
    if organization:
        records = records.filter(organization=organization)
    found = records.values_list("organization", flat=True).first()
    if found is None:
        raise CommandError("There are no records of that execution.")
    return ErasureScope(found, execution=identifier)


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError("--before must be a time such as 2026-01-31T12:00:00Z.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
