"""From what a tool returned to what a reader gets."""

import json
from typing import Any
from uuid import UUID

from tools.definitions.mcp import call_results
from tools.definitions.texts import templates
from tools.definitions.tool import ToolDefinition

MAX_OBSERVATION = 20_000
CUT = "… "
_REST = "\n" + CUT + "{} more characters; the whole output: {}"


def observation_of(
    output: Any, definition: ToolDefinition, execution_id: UUID, upstream_text: str = ""
) -> str:
    """The output as text for a model: as the definition's template has it, else the text of
    the upstream itself, else a text as it is, anything else as JSON without the bytes of images.
    Cut with a marker that says where the rest is. A definition that selects or redacts decides
    what is read of an upstream: then its text is left out."""
    transform = definition.transform
    text = _templated(output, transform.observation)
    if text is None:
        own = bool(transform.path or transform.redacted)
        text = upstream_text if upstream_text and not own else _plain(output, execution_id)
    if len(text) <= MAX_OBSERVATION:
        return text
    rest = _REST.format(len(text) - MAX_OBSERVATION, place_of(execution_id))
    return f"{text[:MAX_OBSERVATION]}{rest}"


def place_of(execution_id: UUID | None) -> str:
    return f"GET /api/v1/executions/{execution_id}/output"


def _plain(output: Any, execution_id: UUID) -> str:
    if isinstance(output, str):
        return output
    place = place_of(execution_id)
    if call_results.is_content_list(output):
        return call_results.content_as_text(output, place)
    return json.dumps(call_results.without_bytes(output, place), ensure_ascii=False)


def _templated(output: Any, template: str) -> str | None:
    """None also where the output does not fit the template: a reader then gets it as it is."""
    if not template:
        return None
    try:
        return templates.render_template(template, {"output": output})
    except templates.CannotRender:
        return None
