"""Loaded by Schemathesis (`SCHEMATHESIS_HOOKS`).

Half of the addresses lead to what is there, for names that are made up lead nowhere:
`CONTRACT_PLACES` has a place for each path, as JSON. No key is used twice: a repeated request is
answered as the first one was, whatever else stands in it.
"""

import itertools
import json
import os
import re
from typing import Any
from zlib import crc32

import schemathesis

PLACES: dict[str, dict[str, str]] = json.loads(os.environ["CONTRACT_PLACES"])
KEY = "Idempotency-Key"
_numbers = itertools.count()


@schemathesis.hook
def map_path_parameters(
    context: schemathesis.HookContext, path_parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    assert context.operation is not None
    there = PLACES.get(context.operation.path)
    if not path_parameters or there is None or crc32(repr(path_parameters).encode()) % 2:
        return path_parameters
    return path_parameters | there


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: Any) -> None:
    if re.fullmatch("[!-~]{1,200}", str((case.headers or {}).get(KEY, ""))):
        case.headers[KEY] = f"{case.headers[KEY]}-{next(_numbers)}"
    if case.headers and case.operation.path.endswith("/output"):
        case.headers.pop("Range", None)  # some bytes of a JSON document are no JSON document
