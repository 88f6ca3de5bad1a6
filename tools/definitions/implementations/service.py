"""Tools of a queue service: the service, and values of its configuration parameters.

What the service declares, the catalog knows; there undeclared and missing values are refused.
"""

import math
from typing import Any

from tools.definitions.fields import DefinitionFields
from tools.definitions.texts.names import PARAMETER_NAME, TOOL_NAME

LONGEST_CONFIG_VALUE = 10_000


def read_service_tool(fields: DefinitionFields, _definition: DefinitionFields) -> dict[str, Any]:
    fields.known(("service", "config"))
    service = fields.text("service", longest=128)
    if service and not TOOL_NAME.fullmatch(service):
        fields.wrong("service", "may hold only letters, digits, '_', '.' and '-', at most 128")
    config = fields.object("config", {})
    for name, value in config.items():
        if not PARAMETER_NAME.fullmatch(name):
            fields.wrong(f"config.{name[:60]}", "is no name of a parameter")
        elif not is_config_value(value):
            fields.wrong(f"config.{name}", "must be a text, a number, true or false")
    return {"service": service, "config": config}


def is_config_value(value: Any) -> bool:
    """What a configuration parameter may be."""
    if isinstance(value, str):
        return len(value) <= LONGEST_CONFIG_VALUE
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
