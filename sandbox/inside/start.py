"""The first lines of a template. sandboxd hands them over as text, and the modules through stdin.

So nothing of ours is mounted or read from a disk, and nothing is compiled once per template.
"""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from types import CodeType, ModuleType


class BundledModuleFinder:
    """Finds the modules that came compiled."""

    def __init__(self, packages: dict[str, CodeType], modules: dict[str, CodeType]) -> None:
        self._packages, self._codes = packages, packages | modules

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name not in self._codes:
            return None
        return ModuleSpec(name, self, is_package=name in self._packages)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """The usual kind."""

    def exec_module(self, module: ModuleType) -> None:
        exec(self._codes[module.__name__], module.__dict__)


if __name__ == "__main__":
    length = int.from_bytes(sys.stdin.buffer.read(4))
    sys.meta_path.insert(0, BundledModuleFinder(*marshal.loads(sys.stdin.buffer.read(length))))
    sys.dont_write_bytecode = True

    from sandbox.inside import template  # it could not be found before

    template.main(int(sys.argv[1]))
