"""Prompt tools ask a model with a template of their own, or with the caller's question."""

from typing import Any

from tools.definitions.fields import DefinitionFields
from tools.definitions.texts import templates

LONGEST_SYSTEM = 20_000
MOST_TOKENS = 1_000_000
MOST_PROMPT_BYTES = 1_000_000


def read_prompt_tool(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.known(("template", "system", "model", "max_tokens", "max_prompt_bytes"))
    template = fields.raw.get("template")
    if not isinstance(template, str) or not template.strip():
        fields.wrong("template", "is required: the text of a prompt")
        template = ""
    try:
        templates.check_template(template, definition.parameter_names())
    except templates.BadTemplate as flaw:
        fields.wrong("template", str(flaw))
    return {"template": template} | _read_model(fields)


def read_text_completion(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.known(("system", "model", "max_tokens", "max_prompt_bytes"))
    definition.need_parameter("question", "prompt")
    return _read_model(fields)


def _read_model(fields: DefinitionFields) -> dict[str, Any]:
    """Null is the installation's default model, or a built-in limit."""
    return {
        "system": fields.text("system", "", longest=LONGEST_SYSTEM) or None,
        "model": fields.text("model", "") or None,
        "max_tokens": fields.integer("max_tokens", None, least=1, most=MOST_TOKENS),
        "max_prompt_bytes": fields.integer(
            "max_prompt_bytes", None, least=1, most=MOST_PROMPT_BYTES
        ),
    }
