"""For `tests.benchmarks.audit_cost`: a Toolcrib started with this on its path records nothing.

Python imports it at start; it waits for `audit.actions` and puts a `record` of its own there.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any
from uuid import uuid4


class _Unaudited(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != "audit.actions":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        return _silenced(spec)


def _silenced(spec: ModuleSpec) -> ModuleSpec:
    loader = spec.loader
    load = loader.exec_module  # type: ignore[union-attr]

    def exec_module(module: ModuleType) -> None:
        load(module)
        module.record = lambda *_, **__: uuid4()  # type: ignore[attr-defined]

    loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
    return spec


sys.meta_path.insert(0, _Unaudited())
