"""What is not written in the field's words: `python -m tests.language [--write]`.

Checks the names of modules, classes, functions and variables, the size and the docstring of each
package, and the words of comments and docstrings (`LANGUAGE.md`, `LAYOUT.md` of the project). The
words and names that are left from before are counted in `language_left.txt`, which may shrink and
not grow; `--write` writes it again. Prints `file: what to do` and ends with 1 where it finds
something.
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
# Functions that are called by a participle or a preposition alone: a function is a verb with its
# object, or the noun of its result.
BARE = {
    "above", "after", "again", "all", "alone", "anew", "apart", "asked", "at", "before", "begun",
    "below", "beside", "beyond", "both", "by", "earlier", "elsewhere", "ended", "every", "found",
    "given", "held", "here", "in", "kept", "known", "lately", "made", "named", "noted", "now", "of",
    "on", "one", "ones", "other", "over", "own", "past", "reached", "said", "same", "seen",
    "shown", "some", "standing", "taken", "tell", "then", "there", "told", "turn", "under", "up",
    "wanted", "whole", "within",
}  # fmt: skip
# Words of the left column of the glossary that name a thing.
IDIOM = {
    "anew", "bell", "bells", "bury", "courier", "crew", "hint", "hints", "keeper", "ladder",
    "lately", "leftovers", "nobody", "parcel", "parcels", "road", "rung", "rungs", "somebody",
    "stumbling", "told", "whoever",
}  # fmt: skip
# Modules in -ing and -ed that are named by a subject all the same, not by what they do to it.
NOUNS = {
    "alerting", "drawing", "embedded", "licensing", "listing", "logging", "masking", "naming",
    "planning", "polling", "reasoning", "sandboxing", "sealing", "signing", "thinning",
    "throttling", "timing",
}  # fmt: skip
# Module names of several packages: one subject in several layers (model, action, API, page), or
# what Django and Python prescribe.
SUBJECTS = {
    "__main__", "agent", "agent_requests", "agents", "alert_rules", "alerts", "approvals", "apps",
    "audit", "batches", "bulk_changes", "cache", "callers", "catalog", "chains", "confirmations",
    "content_schemas", "errors", "events", "executions", "explanations", "grants", "groups", "http",
    "idempotency", "imports", "knowledge", "licenses", "login", "mcp_servers", "messages",
    "metrics", "organizations", "outputs", "reauthentication", "replay", "sandbox_profiles",
    "second_factors", "servers", "service", "services", "sessions", "settings", "signing_keys",
    "single_sign_on", "tasks", "tiers", "tool", "tool_types", "upstream_changes", "urls", "usage",
    "workflow", "workflow_simulator", "workspace",
}  # fmt: skip
# Names of two different things that are left from before; none is added.
AMBIGUOUS = {"actions", "arguments", "base", "fields", "operations", "retention"}
# Names of other people's interfaces: MCP annotations, HTML, the user of Unix.
FOREIGN = {"NOBODY", "type_hints", "get_type_hints"}
# Names of the wire by file: a field of an answer is an attribute of its serializer.
WIRE = {"tools/api/catalog/workflow.py": {"hint"}}
IDENTIFIER = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Idiom of the first files. Names that are still in code may be mentioned in backticks.
WORDS = re.compile(
    r"\b(anew|bell|hint|hints|ladder|lately|nobody|parcel|rung|somebody|stumbl\w+|the road|"
    r"the wall|told|whoever)\b",
    re.IGNORECASE,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
BACKTICKED = re.compile(r"`[^`]*`")
MOST_FILES = 16  # of a package, beside its __init__
# Of these a later change decides: models are one file for each aggregate.
EXEMPT = (
    "audit/migrations/",
    "tools/models/",
    "tools/migrations/",
)
LARGER = ("config/local", "tools/management/commands", *(one.rstrip("/") for one in EXEMPT))
UNSAID = ("management", "commands", "isolated")  # Django's folders, and what is handed over whole


def main(write: bool) -> int:
    files = list(_sources())
    found = Counter({path: len(flaws) for path, flaws in _counted(files).items()})
    if write:
        lines = [f"{count} {path}\n" for path, count in sorted(found.items()) if count]
        LEFT.write_text("".join(lines), encoding="utf-8")
        return 0
    flaws = [*_too_many(files, found), *_classes(files), *_packages(files), *_modules(files)]
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
    counted = _counted(path for path in files if found[path] > allowed[path])
    for path, flaws in sorted(counted.items()):
        yield from (f"{path}:{line}: {flaw}" for line, flaw in sorted(flaws))


def _counted(files: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """What is left of words and names, each with its line."""
    sound = (path for path in files if not path.startswith(EXEMPT))
    return {path: [*_module(path), *_prose(path), *_names(path)] for path in sound}


def _module(path: str) -> Iterator[tuple[int, str]]:
    module = Path(path).stem
    last = module.rpartition("_")[2]
    idiom = IDIOM.intersection(module.split("_"))
    if "/commands/" in path:
        return
    verb = last.endswith(("ing", "ed")) and last not in NOUNS
    if verb or idiom or module in BARE:
        yield 1, f"the module {module} is named by its subject, not by what it does to it"


def _names(path: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    seen = set(FOREIGN | WIRE.get(path, set()))
    for node in ast.walk(tree):
        name = _defined(node)
        if name is None or name in seen:
            continue
        seen.add(name)
        line = getattr(node, "lineno", 1)
        words = {word.lower() for word in IDENTIFIER.findall(name)}
        if idiom := words & IDIOM:
            yield line, f"{name}: {', '.join(sorted(idiom))!r} is an idiom"
        elif isinstance(node, FUNCTIONS) and name.strip("_") in BARE:
            yield line, f"{name}() is a verb with its object, or the noun of its result"


def _defined(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return name
    return None


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
            for word in WORDS.findall(BACKTICKED.sub("", line)):
                yield number + at, f"{word!r} is an idiom: say it in the field's words"


def _classes(files: Iterable[str]) -> Iterator[str]:
    for path in files:
        if path.startswith(CODE) and not path.startswith(EXEMPT):
            text = (ROOT / path).read_text(encoding="utf-8")
            for found in CLASS.finditer(text):
                if found[1] in GENERIC:
                    line = text.count("\n", 0, found.start()) + 1
                    yield f"{path}:{line}: {found[1]} needs a noun before it"


def _modules(files: Iterable[str]) -> Iterator[str]:
    rooms = defaultdict(list)
    for path in files:
        if path.startswith(CODE) and not path.startswith(EXEMPT) and "/commands/" not in path:
            rooms[Path(path).stem].append(path)
    for module, paths in sorted(rooms.items()):
        if len(paths) > 1 and module not in SUBJECTS | AMBIGUOUS | {"__init__"}:
            yield f"{', '.join(paths)}: a module name stands for one subject"


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
