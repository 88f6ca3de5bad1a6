"""From a function to what is sent inside: its text, and of the kit and the imports what it uses."""

import ast
import inspect
import platform
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.attacks import kit
from tests.attacks.kit import Parameters

type Body = Callable[[Parameters], object]

_CALL_NUMBERS = Path(__file__).parents[1] / "sandbox" / "syscall_numbers.csv"
_MACHINES = ("x86_64", "aarch64")
# Since 5.1 all machines give a new call the same number; these are younger than the file.
_NEWER = {
    "cachestat": 451,
    "fchmodat2": 452,
    "map_shadow_stack": 453,
    "statmount": 457,
    "listmount": 458,
    "lsm_list_modules": 461,
    "mseal": 462,
}


_EACH = """

def each(p):
    return [one(p | extra) for extra in p["variants"]]

def one(p):
    try:
        return ["got", {name}(p)]
    except Exception as error:
        return [type(error).__name__, str(error)]

main = each
"""


@cache
def source_of(body: Body) -> str:
    """What is sent inside: the kit, the imports that the function uses, and the function."""
    text = inspect.getsource(body)
    text = text[text.index("def ") :]
    module = inspect.getmodule(body)
    assert module is not None
    tools = "\n".join(kit_for(text))
    imports = sorted({*imports_for(tools, kit), *imports_for(text, module)})
    lines = ["from __future__ import annotations", *imports, tools]
    return "\n".join(
        [*lines, f"NUMBERS = {numbers_for(tools + text)}", text, f"main = {body.__name__}"]
    )


@cache
def source_of_all(body: Body) -> str:
    """The same for many at once: what became of each of `variants`, as its kind and its value."""
    return source_of(body) + _EACH.format(name=body.__name__)


def kit_for(text: str) -> list[str]:
    """What the text uses of the kit, and what that uses in its turn, in the kit's order."""
    parts, used = _kit_parts(), set[str]()
    while more := {name for name in parts.keys() - used if _uses(text, name)}:
        used |= more
        text += "\n".join(parts[name] for name in more)
    return [part for name, part in parts.items() if name in used]


@cache
def _kit_parts() -> dict[str, str]:
    """By the name that each defines."""
    nodes = ast.parse(inspect.getsource(kit)).body
    return {name: ast.unparse(node) for node in nodes for name in _names_of(node)}


def _names_of(node: ast.stmt) -> list[str]:
    """The name that a definition or an assignment makes; our own imports make none."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    if isinstance(target, ast.Name):
        return [target.id] if target.id != "NUMBERS" else []
    calls = isinstance(node, ast.Assign) and isinstance(target, ast.Attribute)
    return ["libc.syscall"] if calls else []


def imports_for(text: str, module: ModuleType) -> list[str]:
    """The module's imports, but for ours, of which the text uses a name."""
    found = []
    for node in _imports_in(module):
        names = [alias for alias in node.names if _uses(text, alias.asname or alias.name)]
        if names:
            found.append(ast.unparse(_with_names(node, names)))
    return found


@cache
def _imports_in(module: ModuleType) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.parse(inspect.getsource(module)).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return [node for node in imports if not _is_ours(getattr(node, "module", "") or "")]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in {"tests", "sandbox"}


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name.partition('.')[0])}\b", text) is not None


def _with_names(
    node: ast.Import | ast.ImportFrom, names: list[ast.alias]
) -> ast.Import | ast.ImportFrom:
    if isinstance(node, ast.Import):
        return ast.Import(names)
    return ast.ImportFrom(node.module, names, node.level)


def numbers_for(text: str) -> dict[str, int]:
    """Of the calls that are named in it; of all where the name is a parameter."""
    if 'p["call"]' in text or "NUMBERS[" in text:
        return numbers()
    named = set(re.findall(r"""["'](\w+)["']""", text))
    return {name: number for name, number in numbers().items() if name in named}


@cache
def numbers() -> dict[str, int]:
    """System calls of this machine by name."""
    column = 1 + _MACHINES.index(platform.machine())
    rows = [line.split(",") for line in _CALL_NUMBERS.read_text().splitlines()[1:]]
    return {row[0]: int(row[column]) for row in rows if row[column]} | _NEWER
