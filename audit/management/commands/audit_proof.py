from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.log.proofs import NotProvable, disclose_line, growth_proof, inclusion_proof
from audit.management.operators import operator


class Command(BaseCommand):
    help = (
        "Print the proof that a record stands in its log (C2SP tlog-proof), its line, or the proof "
        "that a log only grew. audit/verifier/toolcrib_verify.py checks them without Toolcrib. "
        "A line is the whole record, so that it was read is on record."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("record", nargs="?", type=UUID, help="The record's id")
        parser.add_argument("--line", action="store_true", help="The record's line, not its proof")
        parser.add_argument("--log", help="Prove that this organization's log only grew …")
        parser.add_argument("--since", type=int, help="… since the checkpoint of that many records")

    def handle(
        self,
        *args: Any,
        record: UUID | None,
        line: bool,
        log: str | None,
        since: int | None,
        **options: Any,
    ) -> None:
        if (record is None) is (log is None) or (log is None) is not (since is None):
            raise CommandError("Give the id of a record, or --log with --since.", returncode=2)
        try:
            self.stdout.write(_asked_for(record, line, log, since), ending="")
        except NotProvable as error:
            raise CommandError(str(error)) from None


def _asked_for(record: UUID | None, line: bool, log: str | None, since: int | None) -> str:
    if record is None:
        return growth_proof(log or "", since or 0)
    return disclose_line(record, by=operator) if line else inclusion_proof(record)
