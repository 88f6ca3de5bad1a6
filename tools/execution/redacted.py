"""An execution as pages show it to whoever may look: without the secrets that evidence leaves out.

The row keeps what the call must run with, and the API gives a caller their own result as it is.
"""

import json
import re
from typing import Any

from audit.actions import redactor_of
from audit.redaction import Redactor
from tools.definitions.tool import ToolDefinition
from tools.execution.transforms import CUT, observation_of
from tools.models import Execution, ExecutionEvent

_MOST_TEXT = 20_000
_MOST_ITEMS = 1_000
_JSON = ("{", "[")
_REFERENCE = re.compile(r"\[[^{}\"]*\]")  # to an image, a link: no JSON that was cut
_RECEIVED = frozenset({"answer", "data"})  # in `error_details`: values, or their text, cut
FIELDS = ("parameters", "output", "observation", "error_message", "error_details", "warnings")


def redacted(execution: Execution) -> dict[str, Any]:
    """By the names of the fields: what went in, and all that came back in words or values."""
    redactor, definition = _redactor(execution), ToolDefinition(execution.tool_version.definition)
    sensitive = definition.sensitive
    values = {name: getattr(execution, name) for name in FIELDS}
    values["parameters"] = execution.asked  # what stands for another's output may be secret there
    said = {name: redactor.clean(value, sensitive) for name, value in values.items()}
    for name in _RECEIVED & values["error_details"].keys():
        received = values["error_details"][name]
        if isinstance(received, str):
            said["error_details"][name] = _observation(received, redactor, sensitive)
    if definition.transform.observation:
        said["observation"] = _rendered(execution, definition, said["output"])
    else:
        said["observation"] = _observation(execution.observation, redactor, sensitive)
    return said


def _rendered(execution: Execution, definition: ToolDefinition, output: Any) -> str:
    """Anew, from what is left of the output: in a text nobody knows what was secret there. Of one
    that lies apart nothing is left here."""
    if not execution.observation or execution.output_digest:
        return ""
    return observation_of(output, definition, execution.pk)


def _observation(text: str, redactor: Redactor, sensitive: frozenset[str]) -> str:
    """In JSON the names of members tell secrets; what was cut tells nothing, and is left out. It
    may be the whole, or a line behind the text of an upstream."""
    whole = _as_values(text, redactor, sensitive)
    if whole is not None:
        return whole
    lines = text.split("\n")
    found = [_as_values(line, redactor, sensitive) for line in lines]
    if text.startswith(_JSON) and found[0] is None and not _REFERENCE.fullmatch(lines[0]):
        return ""
    if lines[-1].startswith(CUT) and lines[-2].startswith(_JSON) and found[-2] is None:
        del lines[-2], found[-2]
    if all(line is None for line in found):
        return str(redactor.clean("\n".join(lines)))
    return "\n".join(
        str(redactor.clean(line)) if values is None else values
        for line, values in zip(lines, found, strict=True)
    )


def _as_values(text: str, redactor: Redactor, sensitive: frozenset[str]) -> str | None:
    """None where it is no JSON of members or items."""
    if not text.startswith(_JSON):
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return json.dumps(redactor.clean(values, sensitive), ensure_ascii=False)


def redacted_message(event: ExecutionEvent) -> str:
    """What a timeline says of it."""
    said: str = _redactor(event.execution).clean(event.message)
    return said


def _redactor(execution: Execution) -> Redactor:
    return redactor_of(execution.organization.slug).with_room(_MOST_TEXT, _MOST_ITEMS)
