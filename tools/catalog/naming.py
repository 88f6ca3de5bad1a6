"""Checks names of an organization's catalog: unique, and not confusable with another one."""

from tools.definitions.texts.lookalikes import skeleton
from tools.errors import Conflict
from tools.models import Organization, Tool
from tools.models.tool import Skeleton


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
