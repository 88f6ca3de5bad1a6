"""`manage.py create_token`: create a personal token for a user of the API."""

from typing import Any

from django.core.management.base import CommandParser

from tools.accounts import account_actions
from tools.definitions.callers import Scope
from tools.errors import Conflict, NotFound
from tools.management import arguments, text
from tools.management.command import DONE, ToolcribCommand, operator
from tools.management.tokens import how_to_use, token_document, token_lines
from tools.models import User


class Command(ToolcribCommand):
    help = "Makes a personal token and prints it, once. Without more it may do what its person may."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME")
        parser.add_argument("--days", type=arguments.days, metavar="N", help="how long it is good")
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
        shown = text.fields([*lines, *token_lines(token, secret)])
        self.answer(options, document, f"{shown}\n\n{how_to_use(secret)}")
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
