"""`manage.py sandboxd …` becomes `python -m sandbox.daemon …` with an empty environment."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

_PROJECT = Path(__file__).resolve().parents[3]


class Command(BaseCommand):
    help = "Run sandboxd in place of this process. Options: see python -m sandbox.daemon --help"
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("options", nargs="*", help="after --, handed on as they are")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exec, so that nothing Django read (settings, secrets) is in the daemon's memory."""
        os.chdir(_PROJECT)
        command = [sys.executable, "-P", "-m", "sandbox.daemon", *options["options"]]
        environment = {"PYTHONPATH": str(_PROJECT)}
        os.execve(sys.executable, command, environment)  # noqa: S606 - a shell would add an environment
