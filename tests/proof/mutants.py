"""Faults put into the product's source one at a time, and which lines a fault is executed by."""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

PACKAGES = (
    "tools/policy", "tools/execution", "audit", "sandbox", "tools/catalog", "tools/definitions",
)  # fmt: skip
PRODUCT = ("audit", "config", "sandbox", "tools", "toolcrib_service")
_SWAPPED = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip
_OPERATOR = re.compile(rb"==|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\b|\bis\b")
_GUARDS = frozenset({
    "action_page", "atomic", "form_page", "never_cache", "page",
    "require_http_methods", "require_POST", "require_safe",
})  # fmt: skip
_QUERIES = frozenset({"exclude", "filter", "get", "Q", "get_object_or_404"})
_NO_FIELDS = frozenset({"default", "headers", "timeout"})
_WORDS_ONLY = frozenset({"__str__", "__repr__"})
_LOGGERS = frozenset({"log", "logger", "logging"})
type Lines = dict[str, set[int]]


class Moved(Exception):
    """The source has changed since the mutant was made; the message says where."""


@dataclass(frozen=True)
class Mutant:
    """`line` counts from 1, `column` in bytes from 0; `text` is the source line of the start.

    `focus` are functions, `file:name`: where given, tests that execute these are meant.
    """

    package: str
    file: str
    line: int
    column: int
    kind: str
    original: str
    mutated: str
    text: str
    focus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edit:
    kind: str
    start: int
    end: int
    replacement: bytes


class Source:
    """One file's bytes and tree: the tree's columns count bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.tree = ast.parse(content)
        self._starts = [0]
        for line in content.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.place(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.place(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr) -> bytes:
        return self.content[self.start(node) : self.end(node)]

    def edited(self, edit: Edit) -> bytes:
        return self.content[: edit.start] + edit.replacement + self.content[edit.end :]

    def mutant(self, edit: Edit, package: str, file: str) -> Mutant:
        line = self.content.count(b"\n", 0, edit.start) + 1
        return Mutant(
            package, file, line, edit.start - self._starts[line - 1], edit.kind,
            self.content[edit.start : edit.end].decode(), edit.replacement.decode(),
            self.content.splitlines()[line - 1].decode(),
        )  # fmt: skip


class _Finder(ast.NodeVisitor):
    """Every edit of code that a call of a function executes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Edit] = []

    def _add(self, kind: str, start: int, end: int, replacement: bytes) -> None:
        self.found.append(Edit(kind, start, end, replacement))

    def _replace(self, kind: str, node: ast.expr | ast.stmt, replacement: bytes) -> None:
        self._add(kind, self.source.start(node), self.source.end(node), replacement)

    def visit_Module(self, node: ast.Module) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)
            elif isinstance(statement, ast.Assign) and _is_arithmetic(statement.value):
                self.visit(statement.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        names = {_last_name(decorator) for decorator in node.decorator_list}
        if node.name in _WORDS_ONLY or "overload" in names:
            return
        for decorator in node.decorator_list:
            if _last_name(decorator) in _GUARDS:
                at, end = self.source.start(decorator) - 1, self.source.end(decorator)
                self._add("dropped decorator", at, end, b"")
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Words."""

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in pairwise(operands):
            at = self.source.end(left)
            between = self.source.content[at : self.source.start(right)]
            found = _OPERATOR.search(between)
            if found and b"#" not in between:
                old = b" ".join(found[0].split()).decode()
                start, end = at + found.start(), at + found.end()
                self._add("comparison", start, end, _SWAPPED[old].encode())
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        for left, right in pairwise(node.values):
            at = self.source.end(left)
            between = self.source.content[at : self.source.start(right)]
            if b"#" not in between:
                start = at + between.index(old)
                self._add("and/or", start, start + len(old), new)
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if not isinstance(node.test, ast.UnaryOp):
            negated = b"not (" + self.source.segment(node.test) + b")"
            self._replace("negation", node.test, negated)
        if isinstance(node, ast.If):
            for statement in [*node.body, *node.orelse]:
                if isinstance(statement, ast.Return):
                    self._replace("removed return", statement, b"pass")
        self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815 - ast's name

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("negation", node, b"(" + self.source.segment(node.operand) + b")")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            if _first_name(value) in _LOGGERS:
                return
            self._replace("removed call", node, b"pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is None or _last_name(node.exc) != "NotImplementedError":
            self._replace("removed raise", node, b"pass")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) in (int, float):
            for step in (1, -1):
                self._replace("constant", node, repr(node.value + step).encode())

    def visit_Call(self, node: ast.Call) -> None:
        if _last_name(node) in _QUERIES:
            arguments = sorted([*node.args, *node.keywords], key=self.source.start)
            for at, keyword in enumerate(arguments):
                if isinstance(keyword, ast.keyword) and keyword.arg not in (None, *_NO_FIELDS):
                    self._add("removed filter", *self._with_comma(arguments, at), b"")
        self.generic_visit(node)

    def _with_comma(self, arguments: list[ast.expr | ast.keyword], at: int) -> tuple[int, int]:
        if at + 1 < len(arguments):
            return self.source.start(arguments[at]), self.source.start(arguments[at + 1])
        start = self.source.end(arguments[at - 1]) if at else self.source.start(arguments[at])
        return start, self.source.end(arguments[at])


def _last_name(node: ast.expr) -> str:
    """`atomic` of `transaction.atomic(...)`."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_arithmetic(node: ast.expr) -> bool:
    allowed = (ast.BinOp, ast.Constant, ast.Name, ast.operator, ast.expr_context)
    return all(isinstance(part, allowed) for part in ast.walk(node))


def edits(source: Source) -> list[Edit]:
    finder = _Finder(source)
    finder.visit(source.tree)
    return finder.found


def changes_code(source: Source, edit: Edit) -> bool:
    """Whether the edit is valid Python that says something else."""
    try:
        after = ast.parse(source.edited(edit))
    except SyntaxError:
        return False
    return ast.dump(after) != ast.dump(source.tree)


def draw(root: Path, *, seed: int, count: int) -> list[Mutant]:
    """As many of each package, and in it of each kind, as there are."""
    shares = [count // len(PACKAGES) + (at < count % len(PACKAGES)) for at in range(len(PACKAGES))]
    return [
        mutant
        for package, share in zip(PACKAGES, shares, strict=True)
        for mutant in _drawn(root, package, random.Random(f"{seed} {package}"), share)
    ]


def _drawn(root: Path, package: str, chance: random.Random, share: int) -> Iterator[Mutant]:
    by_kind: dict[str, list[tuple[str, Source, Edit]]] = defaultdict(list)
    for file in python_files(root, package):
        source = Source((root / file).read_bytes())
        for edit in edits(source):
            by_kind[edit.kind].append((file, source, edit))
    for kind in sorted(by_kind):
        chance.shuffle(by_kind[kind])
    kinds = sorted(by_kind)
    chance.shuffle(kinds)
    while share and any(by_kind.values()):
        for kind in kinds:
            mutant = _next_good(root, package, by_kind[kind])
            if mutant is not None and share:
                share -= 1
                yield mutant


def _next_good(root: Path, package: str, left: list[tuple[str, Source, Edit]]) -> Mutant | None:
    while left:
        file, source, edit = left.pop()
        if changes_code(source, edit):
            mutant = source.mutant(edit, package, file)
            if executed_by(root, mutant):
                return mutant
    return None


def python_files(root: Path, package: str) -> list[str]:
    found = (root / package).rglob("*.py")
    return sorted(str(file.relative_to(root)) for file in found if "migrations" not in file.parts)


def located(mutant: Mutant, content: bytes) -> int:
    """Where its original is, though lines were added or removed above. Raises `Moved`."""
    lines = content.split(b"\n")
    same = [number for number, line in enumerate(lines, 1) if line.decode() == mutant.text]
    if not same:
        raise Moved(f"{mutant.file}:{mutant.line} has no line {mutant.text.strip()!r} any more")
    line = min(same, key=lambda number: abs(number - mutant.line))
    at = sum(len(text) + 1 for text in lines[: line - 1]) + mutant.column
    if not content[at:].startswith(mutant.original.encode()):
        raise Moved(f"{mutant.file}:{line} goes on otherwise than {mutant.original!r}")
    return at


def mutated(mutant: Mutant, content: bytes) -> bytes:
    """Raises `Moved`."""
    at = located(mutant, content)
    after = at + len(mutant.original.encode())
    return content[:at] + mutant.mutated.encode() + content[after:]


def executed_by(root: Path, mutant: Mutant) -> Lines:
    """The lines, by file, that a test executes which executes the mutant. Raises `Moved`."""
    content = (root / mutant.file).read_bytes()
    at = located(mutant, content)
    if mutant.focus:
        return _bodies(root, mutant.focus)
    return _executed_by(root, mutant.file, content.count(b"\n", 0, at) + 1, frozenset())


def _bodies(root: Path, functions: Iterable[str]) -> Lines:
    found: Lines = defaultdict(set)
    for file, _, name in (function.partition(":") for function in functions):
        bodies = [node.body for node in ast.walk(_tree(root / file)) if _is_function(node, name)]
        if not bodies:
            raise Moved(f"{file} has no function {name} any more")
        for statement in [statement for body in bodies for statement in body]:
            found[file] |= {*range(statement.lineno, (statement.end_lineno or 0) + 1)}
    return found


def _is_function(node: ast.AST, name: str) -> bool:
    return isinstance(node, _FUNCTIONS) and node.name == name


def _executed_by(root: Path, file: str, line: int, known: frozenset[str]) -> Lines:
    around = list(_around(_tree(root / file).body, line))
    functions = [node for node in around if isinstance(node, _FUNCTIONS)]
    innermost = around[-1] if around else None
    if innermost is None:
        return {}
    if functions and innermost is functions[-1]:  # a decorator or a default: what it is for
        return {file: {line for node in innermost.body for line in _own_lines(node)}}
    if functions:
        return {file: {*_own_lines(innermost)}}
    found: Lines = defaultdict(set)
    for name in _assigned(innermost):
        for where, number in _loads(root, file, name):
            if f"{where}:{number}" not in known:
                deeper = _executed_by(root, where, number, known | {f"{where}:{number}"})
                for other, lines in deeper.items():
                    found[other] |= lines
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _around(body: Iterable[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """The statements that contain the line, from the outermost to the innermost."""
    for statement in body:
        first = min([statement.lineno, *(d.lineno for d in _decorators(statement))])
        if first <= line <= (statement.end_lineno or first):
            yield statement
            yield from _around(_child_statements(statement), line)


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    return getattr(statement, "decorator_list", [])


def _child_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(statement, name, [])
    for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield from part.body


def _own_lines(statement: ast.stmt) -> range:
    """Those of the statement without the statements in it."""
    last = statement.end_lineno or statement.lineno
    first_below = min((below.lineno for below in _child_statements(statement)), default=last + 1)
    return range(statement.lineno, max(statement.lineno, min(last, first_below - 1)) + 1)


def _assigned(statement: ast.stmt) -> Iterator[str]:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@cache
def _loads(root: Path, file: str, name: str) -> list[tuple[str, int]]:
    """Where a module's name is read: in it, or where another module imports it."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = _names(root / file, lambda node: isinstance(node, ast.Name) and node.id == name)
    places = [(file, line) for line in found]
    for package in PRODUCT:
        for other in python_files(root, package):
            if other != file and name.encode() in (root / other).read_bytes():
                places += [(other, line) for line in _imported(root / other, module, name)]
    return places


def _imported(file: Path, module: str, name: str) -> list[int]:
    parent, _, last = module.rpartition(".")
    named: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module in (module, parent):
            for alias in node.names:
                if node.module == module and alias.name == name:
                    named.add(alias.asname or name)
                elif node.module == parent and alias.name == last:
                    modules.add(alias.asname or last)
    return _names(
        file,
        lambda node: (isinstance(node, ast.Name) and node.id in named)
        or (isinstance(node, ast.Attribute) and node.attr == name
            and isinstance(node.value, ast.Name) and node.value.id in modules),
    )  # fmt: skip


def _names(file: Path, wanted: Callable[[ast.AST], bool]) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.expr) and wanted(node)
        and isinstance(getattr(node, "ctx", None), ast.Load)
    ]  # fmt: skip
