"""What is said of the items of an import: their names, what became of them, what is wrong where."""

from dataclasses import dataclass, field
from typing import Any

from tools.definitions.dialects.items import Item, Kind
from tools.errors import InvalidDefinition, ToolcribError

CREATED, UPDATED, UNCHANGED, REFUSED = "created", "updated", "unchanged", "refused"
REVIEW = "review"  # what its tool would become waits for a person, as any change of an upstream


@dataclass(frozen=True)
class Imported:
    """What became of one item."""

    key: str
    name: str
    result: str
    errors: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key, "name": self.name, "result": self.result, "errors": self.errors
        }  # fmt: skip


def check_first(item: Item, name: str, seen: dict[tuple[Kind | None, str], Item]) -> None:
    earlier = seen.setdefault((item.kind, name.casefold()), item)
    if earlier is not item:
        raise InvalidDefinition("An earlier item of this import has the same name.", errors=[])


def with_key(item: Item, name: str) -> dict[str, Any]:
    """The value; what it is called stands in its key where it says nothing itself."""
    if not isinstance(item.value, dict):
        raise InvalidDefinition("must be a JSON object", errors=[])
    missing = item.value.get(name) is None and not item.id.startswith("#")
    return item.value | {name: item.id} if missing else item.value


def name_of(item: Item) -> str:
    value = item.value if isinstance(item.value, dict) else {}
    said = value.get("id" if item.kind == Kind.SERVICE else "name")
    if item.kind == Kind.PROMPT or not isinstance(said, str) or not said:
        return item.id
    return said[:200]


def prompt_id(item: Item) -> str:
    return item.id.removeprefix("template.")


def stronger(before: str | None, result: str) -> str:
    order = (UNCHANGED, UPDATED, CREATED)
    return max(before or UNCHANGED, result, key=order.index)


def errors_of(error: ToolcribError, item: Item) -> list[dict[str, Any]]:
    listed = error.details.get("errors")
    flaws = listed if isinstance(listed, list) else []
    found = [
        error_at(flaw.get("field", ""), flaw["message"], item)
        for flaw in flaws
        if "message" in flaw
    ]
    return found or [error_at("", error.message, item)]


def error_at(place: str, message: str, item: Item) -> dict[str, Any]:
    return {"field": place, "message": message, "line": item.lines.of(place)}
