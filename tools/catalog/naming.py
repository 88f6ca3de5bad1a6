"""Names of an organization's catalog: none twice, and none that reads like another one."""

from tools.definitions.visible import skeleton
from tools.errors import Conflict
from tools.models import Organization, Tool


def check_name(organization: Organization, name: str) -> None:
    """Raises `Conflict`. A model, or a person in a hurry, would call the one for the other."""
    alike = skeleton(name)
    names = Tool.objects.present().filter(organization=organization).values_list("name", flat=True)
    for other in names:
        if other.casefold() == name.casefold():
            raise Conflict(f"There is a tool {other} already.", code="tool_exists")
        if skeleton(other) == alike:
            raise Conflict(
                f"{name} reads like {other}, which is there already; choose a name that cannot"
                " be taken for it.",
                code="tool_lookalike",
            )
