"""`manage.py reset_second_factor NAME`: reset a lost second factor where no administrator can."""

from typing import Any

from django.core.management.base import CommandParser

from tools.accounts.login import second_factors
from tools.errors import NotFound
from tools.management.command import DONE, ToolcribCommand, operator
from tools.models import User


class Command(ToolcribCommand):
    help = "Take a person's second factor and recovery codes away, and log them out."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")

    def perform(self, options: dict[str, Any]) -> int:
        people = User.objects.select_related("organization").filter(is_service_account=False)
        person = people.filter(username=options["username"]).first()
        if person is None:
            raise NotFound(f"There is no person {options['username'][:150]!r}.")
        by = operator(person.organization.slug)
        had = second_factors.reset_factors(person=person, giver=None, by=by)
        said = "has no second factor any more, and is logged out" if had else "had none"
        self.answer(
            options, {"username": person.username, "had": had}, f"{person.username} {said}."
        )
        return DONE
