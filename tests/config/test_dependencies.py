"""What the product imports is what it installs: the tests' packages are not there in production."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("audit", "config", "sandbox", "toolcrib_service", "tools")
# What runs inside the sandbox imports its neighbours by the names they have there.
INSIDE = (
    {"patterns", "plain_yaml", "untrusted_json"}
    | {path.stem for path in (ROOT / "tools/builtin/isolated").glob("*.py")}
    | {path.stem for path in (ROOT / "sandbox/inside").glob("*.py")}
)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def foreign() -> list[str]:
    names = {
        name for room in ROOMS for path in (ROOT / room).rglob("*.py") for name in imported(path)
    }
    return sorted(names - set(sys.stdlib_module_names) - set(ROOMS) - INSIDE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_the_product_imports_is_installed_with_it() -> None:
    """Each package comes with a line of `requirements.txt`."""
    pins = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    found = (re.match(r"([A-Za-z0-9_.-]+)==", line) for line in pins)
    distributions, lines = packages_distributions(), {normal(one[1]) for one in found if one}
    assert not [
        package
        for package in foreign()
        if not {normal(one) for one in distributions.get(package, [])} & lines
    ]
