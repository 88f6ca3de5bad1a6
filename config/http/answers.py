"""JSON responses."""

import json
from typing import Any

import orjson


def written(data: Any) -> bytes:
    """Encode any value of the database: it stores 1e22 as a whole number, and orjson writes none
    beyond 64 bits."""
    try:
        return orjson.dumps(data, default=str)
    except orjson.JSONEncodeError:
        return json.dumps(data, default=str).encode()
