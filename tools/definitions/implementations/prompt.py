"""Tools that ask a model: with a template of a prompt, or with what the caller says."""

from typing import Any

from tools.definitions.fields import Fields

MAX_TEMPLATE = 100_000


def read(fields: Fields, _definition: Fields) -> dict[str, Any]:
    fields.known(("template", "model", "system"))
    return {"template": fields.text("template", longest=MAX_TEMPLATE), **_asked(fields)}


def read_completion(fields: Fields, _definition: Fields) -> dict[str, Any]:
    fields.known(("model", "system"))
    return _asked(fields)


def _asked(fields: Fields) -> dict[str, Any]:
    return {
        "model": fields.text("model", "") or None,
        "system": fields.text("system", "", longest=MAX_TEMPLATE) or None,
    }
