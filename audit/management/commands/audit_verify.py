import json
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import process_cpu_count
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.verification import inspection
from audit.verification.inspection import BadRequest, VerificationRequest
from audit.verification.verification_report import VerificationReport

CLEAN, DAMAGED, NOT_ASKED_RIGHT = 0, 1, 2


class Command(BaseCommand):
    help = (
        "Verify the audit logs against their records, their tree, their checkpoints and the "
        "anchors. Exit code 0: nothing is wrong. 1: damage, each with its first bad index and its "
        "kind. 2: the question cannot be answered."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--log", help="One organization's; without it, all")
        parser.add_argument("--from", dest="first", type=int, default=0, help="From that index on")
        parser.add_argument("--anchor", help="A file of anchors or a note, instead of our own")
        parser.add_argument(
            "--pubkey",
            action="append",
            default=[],
            help="name+id+base64: trust this key alone, and no macs. Once for each key there was",
        )
        parser.add_argument(
            "--archive-elsewhere",
            action="store_true",
            help="Do not miss the files of records that left the database",
        )
        parser.add_argument(
            "--resume",
            action="store_true",
            help="From the last verified checkpoint of each log on, as once a day; not all of it",
        )
        parser.add_argument("--json", action="store_true", help="For programs")
        parser.add_argument("--processes", type=int, help="How many work on it; as many as cores")

    def handle(self, *args: Any, processes: int | None, **options: Any) -> None:
        keys = tuple(options["pubkey"])
        question = VerificationRequest(
            options["log"],
            options["first"],
            options["anchor"],
            keys,
            options["archive_elsewhere"],
            options["resume"],
        )
        # They are forked before there are threads or connections that a child could not use.
        many = processes or (process_cpu_count() or 1 if threading.active_count() == 1 else 1)
        pool = ProcessPoolExecutor(many, get_context("fork")) if many > 1 else None
        try:
            if pool is not None:
                pool.submit(int).result()
            reports = [*inspection.inspect_logs(question, pool)]
        except BadRequest as error:
            raise CommandError(str(error), returncode=NOT_ASKED_RIGHT) from None
        finally:
            if pool is not None:
                pool.shutdown()
        self._print(reports, options["json"])
        if any(report.damaged for report in reports):
            sys.exit(DAMAGED)

    def _print(self, reports: list[VerificationReport], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps([report.as_dict() for report in reports], indent=2))
            return
        for report in reports:
            condition = "DAMAGED" if report.damaged else "clean"
            compared = f"{report.checkpoints} checkpoints, {report.anchors} anchors"
            since = f", verified from {report.since} on" if report.since else ""
            self.stdout.write(
                f"{report.log}: {condition}, {report.size} records, {compared}{since}"
            )
            for found in report.findings:
                place = "no index" if found.index is None else f"index {found.index}"
                kind = f"{found.kind} (accepted)" if found.accepted else str(found.kind)
                self.stdout.write(f"  {kind} at {place}: {found.says}")
