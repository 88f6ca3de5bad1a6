"""`manage.py createsuperuser`: Django's command, with an audit record."""

from typing import Any

from django.contrib.auth.management.commands import createsuperuser

from audit.actions import difference
from tools.management.command import open_ended_transaction, record_person_change
from tools.models import User


class Command(createsuperuser.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        superusers = User.objects.filter(is_superuser=True)
        with open_ended_transaction():
            known = [*superusers.values_list("pk", flat=True)]
            super().handle(*args, **options)
            for made in superusers.exclude(pk__in=known):
                record_person_change(
                    made, difference(None, {"is_staff": True, "is_superuser": True})
                )
