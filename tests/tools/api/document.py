"""The generated document of the API. It takes half a second to make, so each process makes it once
for the tests that read it."""

from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator

AS_JSON = {"Accept": "application/json"}  # YAML, the default, takes another half a second


@cache
def document() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)


class MadeOnce(SchemaGenerator):
    def get_schema(self, request: Any = None, public: bool = False) -> dict[str, Any]:
        return document()
