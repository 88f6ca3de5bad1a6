"""Checks that a name is free. Of two concurrent requests one fails: at the row's unique constraint,
or because the other has locked the organization. A tool's name may not be confusable with another
one either."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, transaction
from psycopg import errors as postgres

from tools.definitions.texts.lookalikes import skeleton
from tools.errors import Conflict
from tools.models import Organization, Tool
from tools.models.tool import Skeleton


@contextmanager
def unique(message: str, *, code: str) -> Iterator[None]:
    """Raises `Conflict` where another row has the name. The open transaction continues."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if isinstance(error.__cause__, postgres.UniqueViolation):
            raise Conflict(message, code=code) from None
        raise


def check_name(organization: Organization, name: str) -> None:
    """Raises `Conflict`. A model or a person might call one instead of the other."""
    tools = Tool.objects.present().filter(organization=organization)
    alike = tools.alias(skeleton=Skeleton("name")).filter(skeleton=skeleton(name))
    names = sorted(alike.values_list("name", flat=True))
    for other in names:
        if other.casefold() == name.casefold():
            raise Conflict(f"There is a tool {other} already.", code="tool_exists")
    if names:
        raise Conflict(
            f"{name} reads like {names[0]}, which is there already; choose a name that cannot"
            " be taken for it.",
            code="tool_lookalike",
        )
