"""The installation keeps an active superuser."""

from tools.errors import Conflict
from tools.models import User


def check_superuser_left(person: User, *, active: bool, superuser: bool) -> None:
    """Raises `Conflict` where the person is the last active superuser and would be none any more.

    Locks the superusers: of two who switch each other off at one moment, the second is refused.
    """
    if active and superuser:
        return
    rows = User.objects.filter(is_superuser=True, is_active=True).order_by("pk")
    if {*rows.select_for_update(no_key=True).values_list("pk", flat=True)} == {person.pk}:
        raise Conflict(
            f"{person.username} is the last active superuser. Make another person one first.",
            code="last_superuser",
        )
