"""The base class of management commands: output, errors and exit codes.

0 is done. 1 is refused or failed, with one sentence on standard error. 2 is bad usage: what the
command line alone shows to be wrong. With `--json`, results and errors are JSON documents.
"""

import json
import logging
import os
import re
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, connection, transaction
from psycopg_pool import PoolTimeout
from uuid_utils.compat import uuid7

from audit import actions
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.management import operators
from config.logs import request_id
from tools.errors import ToolcribError, Unavailable
from tools.models import User

GAP = "  "
NOTHING = "-"
# Control characters of terminals, and characters that reverse the direction of text.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
DONE, FAILED = 0, 1
INTERRUPTED = 130  # the exit code of shells for Ctrl-C
CONNECT_TIMEOUT_S = 5


class TextStream(Protocol):
    def write(self, text: str) -> object: ...
    def isatty(self) -> bool: ...


def write_text(stream: TextStream, text: str) -> None:
    """Replaces control characters in texts of tools and servers for a terminal, not for a file."""
    stream.write(_COMMANDS.sub("\ufffd", text) if stream.isatty() else text)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last one has no limit."""
    lines = [tuple(header), *(tuple(cell or NOTHING for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def format_fields(pairs: Iterable[tuple[str, str]]) -> str:
    """One `Name:  value` per line, with aligned values."""
    named = [(f"{name}:", value or NOTHING) for name, value in pairs]
    width = max(len(name) for name, _ in named)
    return "\n".join(f"{name.ljust(width)}{GAP}{value}" for name, value in named)


def join_names(given: Iterable[str]) -> str:
    return ", ".join(given)


class ToolcribCommand(BaseCommand):
    """A command defines its arguments and performs one action; this class does the rest."""

    requires_system_checks = ()  # they take a second and do not concern one call

    def add_arguments(self, parser: CommandParser) -> None:
        self.arguments(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")

    def handle(self, *args: str, **options: Any) -> None:
        logging.disable(logging.WARNING)  # the operator reads sentences; the services write logs
        mark = request_id.set(f"command-{uuid7()}")
        actions.set_source("command")
        try:
            check_database()
            code = self.perform(options)
        except ToolcribError as error:
            code = self._refuse(error, as_json=options["json"])
        except (DatabaseError, PoolTimeout) as error:
            failure = Unavailable(f"The database could not be used: {first_line(error)}")
            code = self._refuse(failure, as_json=options["json"])
        except KeyboardInterrupt:
            self.stderr.write("Interrupted. A call that was accepted goes on.")
            code = INTERRUPTED
        finally:
            request_id.reset(mark)
            actions.clear_source()
            logging.disable(logging.NOTSET)
        if code != DONE:
            sys.exit(code)

    @abstractmethod
    def arguments(self, parser: CommandParser) -> None:
        """Add the arguments of this command beside `--json`."""

    @abstractmethod
    def perform(self, options: dict[str, Any]) -> int:
        """Run the command and return the exit code. Raises `ToolcribError` for a refusal."""

    def answer(self, options: dict[str, Any], document: Any, text: str) -> None:
        """Print a result: the document with `--json`, else the text."""
        try:
            write_text(self.stdout, format_json(document) if options["json"] else text)
            self.stdout.flush()
        except BrokenPipeError:  # `| head` has read enough; Python must not flush into it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _refuse(self, error: ToolcribError, *, as_json: bool) -> int:
        details = dict(error.details)
        shape = {"code": error.code, "message": error.message, "details": details}
        # As in the response of the API, the state of the call is beside the details.
        shape |= {key: details.pop(key) for key in ("status", "execution_id") if key in details}
        # The text has only the invalid fields, which an operator can correct; JSON has all details.
        lines = [error.message, *_format_flaws(error)]
        write_text(self.stderr, json.dumps(shape, default=str) if as_json else "\n".join(lines))
        return FAILED


def format_json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2, default=str)


def check_database() -> None:
    """Connect without Django's pool, which retries and logs warnings for ten seconds."""
    if connection.connection is not None:
        return
    wanted: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
    wanted.update(connection.get_connection_params())
    try:
        psycopg.connect(**wanted).close()
    except psycopg.Error:
        raise Unavailable(
            "The database does not answer. Start Toolcrib with `make run`, and name the same "
            "TOOLCRIB_DATA or DATABASE_URL here.",
            code="database_unavailable",
        ) from None


def operator(organization: str) -> Actor:
    """The operator who typed the command, as the actor of its records."""
    return operators.operator(organization, request_id.get())


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _format_flaws(error: ToolcribError) -> list[str]:
    flaws = error.details.get("errors") or []
    return [f"  {format_flaw(flaw)}" for flaw in flaws]


def format_flaw(flaw: dict[str, Any]) -> str:
    """The error of a field, with its line where that is known."""
    place = flaw.get("field") or flaw.get("place")
    line = f"line {flaw['line']}: " if flaw.get("line") else ""
    return f"{line}{place}: {flaw['message']}" if place else f"{line}{flaw['message']}"


@contextmanager
def open_ended_transaction() -> Iterator[None]:
    """One transaction without an idle timeout, since the operator types a password during it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


def record_person_change(person: User, details: dict[str, Any]) -> None:
    record(
        Event.ROW_CHANGE,
        by=operator(person.organization.slug),
        outcome=Outcome.CHANGED,
        subject=f"user:{person.username}",
        details=details,
    )
