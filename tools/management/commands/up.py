"""`manage.py up`: run all processes of the product in one terminal."""

import os
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from config.local.address import Address
from config.local.deployment import CANNOT_START, DeploymentOptions, run
from tools.bootstrap import first_administrator


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return int(text)


class Command(BaseCommand):
    help = "Starts PostgreSQL, Valkey, sandboxd, egress, web, live, worker and beat; runs them."
    requires_system_checks = ()  # the database does not run yet

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=port, default=os.environ.get("PORT") or "8000")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--no-browser", action="store_true", help="do not open a browser")

    def handle(self, *args: str, **options: Any) -> None:
        wish = DeploymentOptions(
            address=Address(options["host"], options["port"]),
            browser=not options["no_browser"],
            first_administrator=first_administrator,
            report=self.say,
        )
        try:
            run(wish)
        except CANNOT_START as problem:
            self.stderr.write(str(problem))
            sys.exit(1)

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
