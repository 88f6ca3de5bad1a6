"""`manage.py create_token`: create a personal token for a user of the API."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from config.local.address import Address
from tools.accounts import account_actions
from tools.definitions.callers import Scope
from tools.errors import Conflict, NotFound
from tools.management import arguments, command
from tools.management.command import DONE, ToolcribCommand, operator
from tools.management.commands import up
from tools.models import Token, User
from tools.shapes.scalars import moment


def token_document(token: Token, text: str) -> dict[str, Any]:
    return {"id": str(token.pk), "token": text, "expires_at": moment(token.expires_at)}


def token_lines(token: Token, text: str) -> list[tuple[str, str]]:
    return [
        ("Token", f"{text}   (shown this once)"),
        ("Good until", f"{token.expires_at:%Y-%m-%d}"),
    ]


def format_usage(text: str, query: str = "") -> str:
    return f"curl -H 'Authorization: Bearer {text}' '{find_address()}/api/v1/tools{query}'"


def find_address() -> Address:
    """The address where `manage.py up` of this data directory listens, or would listen."""
    words: list[str] = []
    # The lock names the process, and the kernel how it was started; either may be gone.
    with suppress(OSError):
        pid = (settings.DATA_DIR / "up.lock").read_text("ascii").strip()
        words = Path("/proc", pid, "cmdline").read_text("utf-8", "replace").split("\0")
    return _parse_address(words[words.index("up") + 1 : -1] if "up" in words else [])


def _parse_address(words: list[str]) -> Address:
    parser = up.Command().create_parser("manage.py", "up")
    try:
        wanted = parser.parse_args(words)
    except CommandError:
        wanted = parser.parse_args([])
    return Address(wanted.host, wanted.port)


class Command(ToolcribCommand):
    help = "Makes a personal token and prints it, once. Without more it may do what its person may."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME")
        parser.add_argument(
            "--days", type=arguments.parse_days, metavar="N", help="how long it is good"
        )
        parser.add_argument("--label", default="", metavar="L", help="what it is for")
        scopes = [str(scope) for scope in Scope]
        parser.add_argument(
            "--scope",
            action="extend",
            nargs="+",
            choices=scopes,
            help="absent is every scope; manage is the four of administration",
        )
        for name, what in (
            ("group", "the only groups it may request"),
            ("tool", "the only tools it is good for"),
        ):
            letter = name[0].upper()
            parser.add_argument(f"--{name}", action="extend", nargs="*", metavar=letter, help=what)

    def perform(self, options: dict[str, Any]) -> int:
        user = find_person(options["user"])
        token, secret = account_actions.create_token(
            user=user,
            by=operator(user.organization.slug),
            scopes=options["scope"] or [Scope.READ, Scope.EXECUTE, Scope.MANAGE],
            label=options["label"][:100],
            days=options["days"],
            groups=options["group"],
            tools=options["tool"],
        )
        document = {
            "user": user.username,
            "scopes": token.scopes,
            "groups": token.groups,
            "tools": token.tools,
            **token_document(token, secret),
        }
        lines = [("User", user.username), ("Organization", user.organization.slug)]
        shown = command.format_fields([*lines, *token_lines(token, secret)])
        self.answer(options, document, f"{shown}\n\n{format_usage(secret)}")
        return DONE


def find_person(name: str) -> User:
    """Raises `NotFound`, and `Conflict` for a service account."""
    user = User.objects.select_related("organization").filter(username=name).first()
    if user is None:
        raise NotFound(f"There is no user {name[:150]!r}.", code="user_not_found")
    if user.is_service_account:
        raise Conflict(
            f"{name} is the account of an agent. Make its tokens in the admin, or with "
            "POST /api/v1/agents/{slug}/tokens.",
            code="not_a_person",
        )
    if not user.is_active:
        raise Conflict(f"The user {name} is not active.", code="user_inactive")
    return user
