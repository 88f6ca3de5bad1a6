"""`manage.py changepassword`: Django's command, with an audit record."""

import getpass
from typing import Any

from django.contrib.auth.management.commands import changepassword

from tools.management.accounts import note, unhurried
from tools.models import User


class Command(changepassword.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        named = options["username"] = options["username"] or getpass.getuser()
        with unhurried():
            done: str | None = super().handle(*args, **options)
            note(User.objects.get(username=named), {"change": "password"})
        return done
