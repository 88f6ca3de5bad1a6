"""What is not written in the field's words: `python -m tests.language [--write]`.

Checks the names of classes, the size and the docstring of each package, and the words of comments
and docstrings (`LANGUAGE.md`, `LAYOUT.md` of the project). What is left from before stands in
`language_left.txt`, which may shrink and not grow; `--write` writes it again. Prints `file: what to
do` and ends with 1 where it finds something.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT = Path(__file__).with_name("language_left.txt")
CODE = ("audit", "config", "sandbox", "toolcrib_service", "tools")

# Class names that say nothing without a noun before them, and what Django prescribes.
GENERIC = {
    "Asked", "Found", "Given", "Kept", "Kind", "Line", "Noted", "Place", "Read", "Row", "Run",
    "Shown", "Source", "Standing", "Step", "Told", "Wanted",
}  # fmt: skip
PRESCRIBED = {"Meta", "Command", "Migration"}
# Idiom of the first files. Names that are still in code may be mentioned in backticks.
WORDS = re.compile(
    r"\b(anew|bell|hint|hints|ladder|lately|nobody|parcel|rung|somebody|stumbl\w+|the road|"
    r"the wall|told|whoever)\b",
    re.IGNORECASE,
)
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
BACKTICKED = re.compile(r"`[^`]*`")
MOST_FILES = 16  # of a package, beside its __init__
# Of these a later change decides: the pipeline and the MCP client are written again, models are one
# file for each aggregate.
EXEMPT = ("tools/execution/", "tools/mcpclient/", "tools/models/", "tools/migrations/")
LARGER = ("config/local", "tools/management/commands", *(one.rstrip("/") for one in EXEMPT))
UNSAID = ("management", "commands", "isolated")  # Django's folders, and what is handed over whole


def main(write: bool) -> int:
    files = list(_sources())
    found = Counter({path: len(words) for path, words in _words(files).items()})
    if write:
        lines = [f"{count} {path}\n" for path, count in sorted(found.items()) if count]
        LEFT.write_text("".join(lines), encoding="utf-8")
        return 0
    flaws = [*_too_many(files, found), *_classes(files), *_packages(files)]
    print(*flaws, sep="\n", end="\n" if flaws else "")
    return 1 if flaws else 0


def _sources() -> Iterator[str]:
    for top in (*CODE, "tests"):
        yield from (str(path.relative_to(ROOT)) for path in sorted((ROOT / top).rglob("*.py")))


def _too_many(files: Iterable[str], found: Counter[str]) -> Iterator[str]:
    allowed = Counter[str]()
    for line in LEFT.read_text(encoding="utf-8").splitlines():
        count, path = line.split()
        allowed[path] = int(count)
    words = _words(path for path in files if found[path] > allowed[path])
    for path, lines in sorted(words.items()):
        for number, word in lines:
            yield f"{path}:{number}: {word!r} is an idiom: say it in the field's words"


def _words(files: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    return {path: [*_prose(path)] for path in files if not path.startswith(EXEMPT)}


def _prose(path: str) -> Iterator[tuple[int, str]]:
    """The words of comments and docstrings, each with its line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not WORDS.search(text):
        return
    texts = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                texts.append((first.lineno, str(first.value.value)))
    for number, one in texts:
        for at, line in enumerate(one.splitlines()):
            yield from ((number + at, word) for word in WORDS.findall(BACKTICKED.sub("", line)))


def _classes(files: Iterable[str]) -> Iterator[str]:
    for path in files:
        if path.startswith(CODE) and not path.startswith(EXEMPT):
            text = (ROOT / path).read_text(encoding="utf-8")
            for found in CLASS.finditer(text):
                if found[1] in GENERIC:
                    line = text.count("\n", 0, found.start()) + 1
                    yield f"{path}:{line}: {found[1]} needs a noun before it"


def _packages(files: Iterable[str]) -> Iterator[str]:
    rooms = defaultdict(list)
    for path in files:
        if path.startswith(CODE):
            room, _, name = path.rpartition("/")
            rooms[room].append(name)
    for room, names in sorted(rooms.items()):
        modules = len(names) - names.count("__init__.py")
        if modules > MOST_FILES and not room.startswith(LARGER):
            yield f"{room}: {modules} files; a package has at most {MOST_FILES}"
        if modules and "__init__.py" in names and "migrations" not in room:
            init = (ROOT / room / "__init__.py").read_text(encoding="utf-8")
            if not ast.get_docstring(ast.parse(init)) and not room.endswith(UNSAID):
                yield f"{room}/__init__.py: says in two sentences what the package is and is not"


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
