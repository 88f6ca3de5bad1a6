"""From what a tool returned to what a reader gets."""

import json
from typing import Any
from uuid import UUID

from tools.definitions import templates
from tools.definitions.tool import ToolDefinition

MAX_OBSERVATION = 20_000
_REST = "\n… {} more characters; the whole output: GET /api/v1/executions/{}/output"


def observation_of(output: Any, definition: ToolDefinition, execution_id: UUID) -> str:
    """The output as text for a model: as the definition's template has it, else a text as it is,
    anything else as JSON. Cut with a marker that says where the rest is."""
    text = _templated(output, definition.transform.observation)
    if text is None:
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    if len(text) <= MAX_OBSERVATION:
        return text
    rest = _REST.format(len(text) - MAX_OBSERVATION, execution_id)
    return f"{text[:MAX_OBSERVATION]}{rest}"


def _templated(output: Any, template: str) -> str | None:
    """None also where the output does not fit the template: a reader then gets it as it is."""
    if not template:
        return None
    try:
        return templates.render(template, {"output": output})
    except templates.CannotRender:
        return None
