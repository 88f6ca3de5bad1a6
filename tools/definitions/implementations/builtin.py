"""Built-in tools name the function of the product that they are."""

from typing import Any

from tools.definitions.fields import Fields


def read(fields: Fields, definition: Fields) -> dict[str, Any]:
    fields.known(("entry_point",))
    return {"entry_point": fields.text("entry_point", str(definition.raw.get("name", "")))}
