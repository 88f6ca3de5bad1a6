"""`manage.py changepassword`: Django's command, with an audit record."""

import getpass
from typing import Any

from django.contrib.auth.management.commands import changepassword

from tools.management.command import open_ended_transaction, record_person_change
from tools.models import User


class Command(changepassword.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        named = options["username"] = options["username"] or getpass.getuser()
        with open_ended_transaction():
            done: str | None = super().handle(*args, **options)
            record_person_change(User.objects.get(username=named), {"change": "password"})
        return done
