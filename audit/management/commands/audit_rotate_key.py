from typing import Any

from django.core.management.base import BaseCommand, CommandError

from audit.log.checkpoint_publication import public_keys, rotate_key
from audit.log.key_files import RotationUnderWay
from audit.management.operators import operator


class Command(BaseCommand):
    help = (
        "Sign checkpoints with a new key. The next one of every log carries both signatures, those "
        "after it the new one alone. Prints the public keys, to be kept outside of this machine."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            rotate_key(by=operator)
        except RotationUnderWay as error:
            raise CommandError(str(error)) from None
        for line in public_keys():
            self.stdout.write(line)
