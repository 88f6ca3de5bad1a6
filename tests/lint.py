"""What makes a test fail for load or order: `python -m tests.lint [FILE …]`.

Prints `file:line: what to do` and ends with 1 where it finds something. A line is excused by
`# lint: reason` at its end, or alone on the line above.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent

# Tables that hold rows of all organizations, and what the running product writes meanwhile.
SHARED = {
    "Agent", "AgentRequest", "Alert", "AlertDelivery", "AuditExport", "AuditLeaf", "AuditLog",
    "AuditPayload", "AuditRecord", "CacheEntry", "Checkpoint", "Confirmation", "EgressCredential",
    "Execution", "ExecutionEvent", "InboxItem", "McpServer", "Message", "Organization", "RateHit",
    "Reservation", "SandboxProfile", "Session", "SigningKey", "StateTransition", "StoredOutput",
    "Token", "Tool", "ToolGroup", "ToolService", "ToolVersion", "UpstreamChange", "User",
}  # fmt: skip
READS = {"aggregate", "count", "earliest", "exists", "first", "get", "last", "latest"}
# A keyword that names a row of the test's own, and those that do where the value is no literal:
# "echo" is a tool of every organization, `tool.name` may be one of the test's own.
OWN = {
    "agent", "channel", "confirmation", "execution", "id", "log", "made_by", "organization",
    "parent", "pk", "record", "request", "retry_of", "schema", "server", "session", "slug",
    "subject", "tool", "user", "username",
}  # fmt: skip
OWN_BY_VALUE = {"actor", "name", "number", "token"}
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time"}
MEASURED = re.compile(r"^(began|begun|started|elapsed|took|duration|age)|_(ms|s|ns)$")
LONG_S = 30  # a bound that no machine in use comes near
OWN_SCHEMA = "ledger"  # the fixture with the tables of `audit` in a schema of their own
MAY_SLEEP = ("conditions.py", "stubs/", "faults/")
LEFT_OUT = "benchmarks"  # they measure this machine

ROWS = "counts rows of all organizations: name an organization, a subject or a primary key"
BOUND = "is a bound on this machine's speed: compare with what the product reports or limits"
SLEEP = "waits by time: wait for an event, or use tests.conditions.until"
XFAIL = "an expected failure needs reason= and strict=True"
FLAKY = "a test is not tried again: mend what it waits for"

type Check = Callable[[ast.AST], str | None]


def main(files: Iterable[Path]) -> int:
    found = [line for file in files for line in flaws(file)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


def flaws(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    lines, place = text.splitlines(), file.relative_to(TESTS.parent)
    for number, what in sorted(set(_find_flaws(ast.parse(text), str(file.relative_to(TESTS))))):
        if not _excused(lines, number):
            yield f"{place}:{number}: {what}"


def _excused(lines: list[str], number: int) -> bool:
    above = lines[number - 2].strip() if number > 1 else ""
    reasons = lines[number - 1], above if above.startswith("#") else ""
    return any(re.search(r"# lint: \w+ \w+", one) for one in reasons)


def _find_flaws(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    alone, strict = _with_a_schema_of_their_own(tree), _strict_marks(tree)
    for node in ast.walk(tree):
        if node not in alone and (_is_read_of_all(node) or _is_loop_over_all(node)):
            yield _line(getattr(node, "iter", node)), ROWS
        if isinstance(node, ast.Assert) and any(map(_is_bound, ast.walk(node))):
            yield _line(node), BOUND
        if not name.startswith(MAY_SLEEP) and _called_name(node) == "time.sleep":
            yield _line(node), SLEEP
        if _dotted(node).endswith((".flaky", ".rerun", "reruns")):
            yield _line(node), FLAKY
        if _dotted(node).endswith(".xfail") and node not in strict:
            yield _line(node), XFAIL


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _dotted(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _called_name(node: ast.AST) -> str:
    return _dotted(node.func) if isinstance(node, ast.Call) else ""


def _is_read_of_all(node: ast.AST) -> bool:
    """`Model.objects…count()` with no keyword in the chain that names a row."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr in READS and _is_of_all(node)


def _is_loop_over_all(node: ast.AST) -> bool:
    """`for row in Model.objects.exclude(…)`, in a comprehension too."""
    return isinstance(node, ast.For | ast.comprehension) and _is_of_all(node.iter)


def _is_of_all(node: ast.AST) -> bool:
    calls: list[ast.Call] = []
    while not (manager := _dotted(node)).endswith(".objects"):
        if not isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            return False
        calls += [node] if isinstance(node, ast.Call) else []
        node = node.func if isinstance(node, ast.Call) else node.value
    model = manager.removesuffix(".objects").rpartition(".")[2]
    return model in SHARED and not any(map(_names_a_row_of_its_own, calls))


def _names_a_row_of_its_own(call: ast.Call) -> bool:
    """What is excluded leaves everybody else's."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "exclude":
        return False
    calls = [call, *(one for part in (*call.args, *call.keywords) for one in ast.walk(part))]
    return any(map(_filters_by_row, calls))


def _filters_by_row(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        words = {*(node.arg or "").split("__")}
        computed = not isinstance(node.value, ast.Constant)
        return bool(words & OWN or (computed and words & OWN_BY_VALUE)) or "_id" in (node.arg or "")
    # A queryset's own method with a row: `Execution.objects.of(organization)`.
    return isinstance(node, ast.Call) and any(
        isinstance(one, ast.Name | ast.Attribute) for one in node.args
    )


def _with_a_schema_of_their_own(tree: ast.Module) -> set[ast.AST]:
    """All nodes of functions that use the fixture, or a fixture of the file that does."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names, before = {OWN_SCHEMA}, 0
    while len(names) > before:
        before = len(names)
        names |= {one.name for one in functions if names & {a.arg for a in one.args.args}}
    return {node for one in functions if one.name in names for node in ast.walk(one)}


def _is_bound(node: ast.AST) -> bool:
    """`time.monotonic() - began < 2`, `result.usage.wall_ms < 420`."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    for at, sign in enumerate(node.ops):
        small, large = sides[at], sides[at + 1]
        if isinstance(sign, ast.Gt | ast.GtE):
            small, large = large, small
        elif not isinstance(sign, ast.Lt | ast.LtE):
            continue
        if isinstance(large, ast.Constant) and _is_measured(small):
            name = _dotted(small).rpartition(".")[2]
            unit = {"_ms": 1e3, "_ns": 1e9}.get(name[-3:], 1)
            if isinstance(large.value, int | float) and large.value < LONG_S * unit:
                return True
    return False


def _is_measured(node: ast.AST) -> bool:
    if any(_called_name(one).rpartition(".")[2] in CLOCKS for one in ast.walk(node)):
        return True
    return bool(MEASURED.search(_dotted(node).rpartition(".")[2]))


def _strict_marks(tree: ast.Module) -> set[ast.AST]:
    """`pytest.mark.xfail(…, reason=…, strict=True)`, and no `pytest.xfail()`, which any fault may
    reach."""
    calls = [node for node in ast.walk(tree) if _called_name(node) == "pytest.mark.xfail"]
    return {
        node.func
        for node in calls
        if isinstance(node, ast.Call) and {"reason", "strict"} <= {one.arg for one in node.keywords}
    }


if __name__ == "__main__":
    files = [Path(one).resolve() for one in sys.argv[1:]] or sorted(TESTS.rglob("*.py"))
    sys.exit(main(file for file in files if LEFT_OUT not in file.parts))
