"""Tools of a tool service: which one, and what its parameters are set to. Whether there is such a
service, and takes them, the catalog knows."""

import json
from typing import Any

from tools.definitions import names
from tools.definitions.fields import Fields

MOST_CONFIG = 64 * 1024  # characters, as JSON


def read(fields: Fields, _definition: Fields) -> dict[str, Any]:
    fields.known(("service", "config"))
    service = fields.text("service", longest=128)
    if service and not names.TOOL_NAME.fullmatch(service):
        fields.wrong("service", "may hold only letters, digits, '_', '.' and '-', at most 128")
    config = fields.object("config", {})
    if len(json.dumps(config)) > MOST_CONFIG:
        fields.wrong("config", f"is longer than {MOST_CONFIG} characters as JSON")
    return {"service": service, "config": config}
