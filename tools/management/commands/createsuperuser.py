"""`manage.py createsuperuser`: Django's command, with an audit record."""

from typing import Any

from django.contrib.auth.management.commands import createsuperuser

from audit.actions import difference
from tools.management.accounts import note, unhurried
from tools.models import User


class Command(createsuperuser.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        superusers = User.objects.filter(is_superuser=True)
        with unhurried():
            known = [*superusers.values_list("pk", flat=True)]
            super().handle(*args, **options)
            for made in superusers.exclude(pk__in=known):
                note(made, difference(None, {"is_staff": True, "is_superuser": True}))
