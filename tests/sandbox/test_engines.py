"""What the author of a tool is promised, in each engine: Python, Monty and JavaScript.

Monty and JavaScript are asked without their walls here, and behind them below.
"""

import json
import re
from itertools import product
from typing import Any

import pytest

from sandbox.spec import MIB, Backend, IsolationLevel, Language, Profile, RunOutcome
from tests.sandbox.engines import Said, in_deno, in_monty

RUNTIMES, SANDBOX = pytest.mark.part("runtimes"), pytest.mark.part("sandbox")
LEVELS = (IsolationLevel.STANDARD, IsolationLevel.STRICT, IsolationLevel.RESTRICTED)


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Any:
    """A program, its parameters and its entry point to what an engine says of them."""

    def run_in_engine(engine: str, *job: Any) -> Any:
        if engine != "python":
            return {"monty": in_monty, "deno": in_deno}[engine](*job)
        result = request.getfixturevalue("run")(*job)
        assert result.sandbox_id
        if result.outcome == RunOutcome.SUCCESS:
            assert result.error_code is None
            frame = b"R" + json.dumps(result.output).encode()
        else:
            assert result.outcome == RunOutcome.FAILED
            error = {"code": result.error_code, "message": result.error_message}
            frame = b"E" + json.dumps(error).encode()
        return Said(frame, result.stdout, result.stderr)

    return run_in_engine


def rows(engine: str, table: dict[str, Any], each: int = 0, mark: Any = ()) -> list[Any]:
    """Cases by their ids, of the part that `mark` names, but `each` so many-th."""
    return [
        pytest.param(
            engine, *row, id=f"{engine} {name}", marks=() if each and at % each == 0 else mark
        )
        for at, (name, row) in enumerate(table.items())
    ]


RETURNED = [
    *rows("python", {
        "json": ("def main(p):\n    return {'twice': p['n'] * 2, 'text': 'ü'}", ({"n": 21},),
                 {"twice": 42, "text": "ü"}),
        "nothing": ("def main(p):\n    return None", (), None),
    }),
    *rows("monty", {
        "json": ("def main(p):\n"
                 "    return {'twice': p['n'] * 2, 'all': (1, None, True, p['text'])}",
                 ({"n": 21, "text": "ü"},), {"twice": 42, "all": [1, None, True, "ü"]}),
        "another entry point": ("def add(p):\n    return p[0] + p[1]", ([1, 2], "add"), 3),
        "a large integer": ("def main(p):\n    return [2**64 - 1, p]", (-(2**63),),
                            [2**64 - 1, -(2**63)]),
    }),
    *rows("deno", {
        "a large integer": ("function main() { return { id: 1917043659912705296n, n: [2 ** 53] } }",
                            (), {"id": 1917043659912705296, "n": [2**53]}),
        "json": ("function main(p) { return { twice: p.n * 2, text: 'ü' } }",
                 ({"n": 21},), {"twice": 42, "text": "ü"}),
        "no environment": ("function main() { return Deno.env.get('HOME') ?? 'nothing' }", (),
                           "nothing"),
    }),
    *rows("deno", {
        "async": ("export async function main(p) { return { twice: await p.n * 2, text: 'ü' } }",
                  ({"n": 21},), {"twice": 42, "text": "ü"}),
        "arrow": ("const main = ({ n }) => ({ twice: n * 2, text: 'ü' });\nexport { main };",
                  ({"n": 21},), {"twice": 42, "text": "ü"}),
        "assigned": ("let main = 1; main = (p) => ({ twice: p.n * 2, text: 'ü' }) // at the end",
                     ({"n": 21},), {"twice": 42, "text": "ü"}),
        "another entry point": ("function add(p) { return p[0] + p[1] }", ([1, 2], "add"), 3),
        "nothing": ("function main() {}", (), None),
    }, mark=RUNTIMES),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "source", "job", "expected"), RETURNED)
def test_what_a_tool_returns_comes_back(say, engine, source, job, expected):
    assert say(engine, source, *job).result == expected


RAISES = "from toolcrib import ToolError\ndef main(p):\n    raise ToolError({!r}, 'gone')"
ANY = r"[^\0]*"
FAILED = [
    *rows("python", {
        "the line of the tool": (
            "import json\ndef main(p):\n    help_me(p)\ndef help_me(p):\n    json.loads('{')", (),
            "TOOL_ERROR", rf"JSONDecodeError: {ANY}\(line 5\)"),
        "a bounded text without a traceback": (
            "def main(p):\n    raise ValueError('x' * 100_000)", (),
            "TOOL_ERROR", r"ValueError: x{500} \(line 2\)"),
        "an error that cannot even be printed": (
            "class Odd(Exception):\n    def __str__(self):\n        raise KeyError\n"
            "def main(p):\n    raise Odd", (), "TOOL_ERROR", r"Odd \(line 5\)"),
        "source that does not compile": (
            "x = 1\ndef main(p)\n    return 1", (),
            "TOOL_ERROR", r"SyntaxError: expected ':' \(line 2\)"),
        "no entry point": ("x = 1", (), "TOOL_ERROR", f"{ANY}no function 'main'{ANY}"),
        "a code of its own": (RAISES.format("NOT_FOUND"), (), "NOT_FOUND", f"{ANY}gone{ANY}"),
        "no code": (RAISES.format("no"), (), "TOOL_ERROR", f"{ANY}gone{ANY}"),
        "a code too long": (RAISES.format("X" * 41), (), "TOOL_ERROR", f"{ANY}gone{ANY}"),
        **{f"no JSON: {value}": (f"def main(p):\n    return {value}", (), "INVALID_RESULT", ANY)
           for value in ("{1, 2}", "object()", "float('nan')", "float('inf')", "b'x'",
                         "(lambda: 1)")},
        **{f"what a database could not keep: {value!r}":
               (f"def main(p):\n    return [{value}]", (), "INVALID_RESULT", ANY)
           for value in ("'\\0'", "'\\ud800'", "10**300", "1e999")},
    }),
    *rows("monty", {
        "the line of the tool": (
            "def main(p):\n    return help(p)\ndef help(p):\n    return p['missing']", ({},),
            "TOOL_ERROR", r"KeyError: missing \(line 4\)"),
        "source that does not compile": (
            "x = 1\ndef main(p)\n    return 1", (), "TOOL_ERROR", rf"SyntaxError: {ANY}\(line 2\)"),
        "what this Python does not have": (
            "import socket\ndef main(p):\n    return 1", (),
            "TOOL_ERROR", r"ModuleNotFoundError: No module named 'socket' \(line 1\)"),
        "a code of its own": (RAISES.format("NOT_FOUND"), (), "NOT_FOUND", "gone"),
        "no code": (RAISES.format("no"), (), "TOOL_ERROR", "ToolError: gone"),
        "an error after one that was caught": (
            "from toolcrib import ToolError\ndef main(p):\n"
            "    try:\n        raise ToolError('NOT_FOUND', 'gone')\n"
            "    except Exception:\n        raise ValueError('other')", (),
            "TOOL_ERROR", r"ValueError: other \(line 6\)"),
        "a bounded text": (
            "def main(p):\n    raise ValueError('x' * 99999)", (),
            "TOOL_ERROR", r"ValueError: xxx[^\0]{0,584}"),
        "endless recursion": (
            "def main(p):\n    return main(p)", (), "TOOL_ERROR", f"RecursionError: {ANY}"),
    }),
    *rows("monty", {
        f"no entry point: {name}": (
            "other = 1", (None, name), "TOOL_ERROR",
            re.escape(f"the tool has no function {name!r}"))
        for name in ("main", "class", "main)(1", "1")
    }, each=2, mark=SANDBOX),
    *rows("monty", {
        f"no JSON: {value}": (
            f"def main(p):\n    return {value}", (),
            "INVALID_RESULT", f"the result is not JSON: {ANY}")
        for value in ("{1, 2}", "b'x'", "float('nan')", "main", "{(1, 2): 3}")
    }, each=3, mark=SANDBOX),
    *rows("monty", {
        f"nothing of the machine: {expression}": (
            f"import os\ndef main(p):\n    return str({expression})", (), "TOOL_ERROR", ANY)
        for expression in ("open('/etc/passwd').read()", "os.listdir('/')", "os.environ",
                           "os.urandom(1)", "os.system")
    }, each=2, mark=SANDBOX),
    *rows("deno", {
        "an integer that may be inexact": (
            "function main() { return { id: JSON.parse('1917043659912705296') } }", (),
            "INVALID_RESULT", rf"{ANY}key id is beyond 2\^53 and may be inexact; return a BigInt"),
        "the line of the tool": (
            "function main(p) {\n  return help(p)\n}\nconst help = (p) => p.a.b", ({},),
            "TOOL_ERROR",
            r"TypeError: Cannot read properties of undefined \(reading 'b'\) \(line 4\)"),
        "a code of its own": (
            "function main() { throw new ToolError('NOT_FOUND', 'gone') }", (),
            "NOT_FOUND", "gone"),
    }),
    *rows("deno", {
        "source that does not compile": (
            "const x = 1;\nfunction main(p {}", (), "TOOL_ERROR", rf"SyntaxError: {ANY}\(line 2\)"),
        "no entry point": (
            "const other = 1", (None, "main"), "TOOL_ERROR", "the tool has no function 'main'"),
        "an entry point that is code": (
            "const other = 1", (None, "main };\nimport 'x'"), "TOOL_ERROR",
            re.escape("the tool has no function 'main };\nimport 'x''")),
        **{f"thrown: {thrown}": (f"function main() {{ throw {thrown} }}", (), code, message)
           for thrown, code, message in (
               ("{code: 'NOT_FOUND', message: 'gone'}", "NOT_FOUND", "gone"),
               ("{code: 'no', message: 'gone'}", "TOOL_ERROR", "gone"),
               ("{code: 'OUT', message: 3}", "TOOL_ERROR", "3"),
               ("'only words'", "TOOL_ERROR", "only words"),
               ("null", "TOOL_ERROR", "null"),
               ("Object.assign(new Error('gone'), {code: 'ENOENT'})", "TOOL_ERROR",
                r"Error: gone \(line 1\)"))},
        "a bounded text": (
            "function main() { throw new Error('x'.repeat(99999)) }", (),
            "TOOL_ERROR", r"Error: x{500} \(line 1\)"),
        **{f"an error outside of main: {late}": (
               f"function main() {{ {late}; return new Promise(() => 1) }}", (), "TOOL_ERROR", ANY)
           for late in ("setTimeout(() => { null.x })", "Promise.reject(Error('no'))")},
        "waiting for nothing": (
            "function main() { return new Promise(() => 1) }", (), "TOOL_ERROR",
            "the tool waits for what will never happen"),
        **{f"no JSON: {value}": (
               f"const loop = []; loop.push(loop);\nfunction main() {{ return {value} }}", (),
               "INVALID_RESULT", ANY)
           for value in ("NaN", "[1, -Infinity]", "() => 1", "Symbol()", "loop")},
    }, mark=RUNTIMES),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "source", "job", "code", "message"), FAILED)
def test_what_goes_wrong_in_a_tool_is_its_error(say, engine, source, job, code, message):
    error = say(engine, source, *job).error
    assert error[0] == code
    assert re.fullmatch(message, error[1]), error[1]


@pytest.mark.parametrize(
    ("engine", "more", "returned", "out"),
    [
        ("python", "    sys.stdout.write('no newline')\n    return 1", 1, "out\nno newline"),
        ("monty", "", None, "out\n"),
    ],
)
def test_what_a_tool_prints_is_kept_apart_from_its_result(say, engine, more, returned, out):
    source = "import sys\ndef main(p):\n    print('out')\n    print('err', file=sys.stderr)\n"
    answer = say(engine, source + more)
    assert (answer.result, answer.out, answer.err) == (returned, out, "err\n")


@pytest.mark.parametrize(
    "expression", ["[0] * (1 << 40)", "'x' * (1 << 30)", "[list(range(99999)) for _ in range(999)]"]
)
def test_more_memory_than_allowed_is_refused_by_montys_vm_already(expression):
    answer = in_monty(f"def main(p):\n    return {expression}", memory_bytes=64 * MIB)
    assert answer.error[0] == "MEMORY_LIMIT"


# Inside the sandbox.


def sandboxed_profile(engine: str, level: IsolationLevel) -> Profile:
    if engine == "monty":
        return Profile(level, backend=Backend.MONTY)
    return Profile(level, language=Language.JAVASCRIPT)


AT_EVERY_LEVEL = [
    pytest.param(
        engine, level, id=f"{engine} {level}",
        marks=RUNTIMES if engine == "deno" and level != IsolationLevel.STANDARD else (),
    )
    for engine, level in product(("monty", "deno"), LEVELS)
]  # fmt: skip
TWICE = {
    "monty": "def main(p):\n    print('hi')\n    return {'twice': p['n'] * 2}",
    "deno": "async function main(p) {\n  console.log('hi');\n  return { twice: p.n * 2 }\n}",
}
HOSTILE = {
    "monty": "def main(p):\n    return [10**300]",
    "deno": "function main() { return ['\\0'] }",
}
SMALL, SHORT = {"memory_bytes": 64 * MIB}, {"output_bytes": 1 << 16}
LIMITS = {
    "monty": [
        ("x = [0]\n    while True: x = x + x", SMALL, "MEMORY_LIMIT"),
        ("while True: pass", {"cpu_s": 0.2}, "CPU_LIMIT"),
        ("while True: pass", {"wall_s": 0.3}, "TIMEOUT"),
        ("while True: print('x' * 9999)", SHORT, "OUTPUT_LIMIT"),
        ("return 'x' * (1 << 20)", SHORT, "OUTPUT_LIMIT"),
    ],
    "deno": [
        ("const a = []; for (;;) a.push({ a })", SMALL, "MEMORY_LIMIT"),
        ("const a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))", SMALL, "MEMORY_LIMIT"),
        ("for (;;);", {"cpu_s": 0.3}, "CPU_LIMIT"),
        ("for (;;);", {"wall_s": 0.5}, "TIMEOUT"),
        ("for (;;) console.log('x'.repeat(9999))", SHORT, "OUTPUT_LIMIT"),
        ("return 'x'.repeat(1 << 20)", SHORT, "OUTPUT_LIMIT"),
    ],
}


@pytest.mark.parametrize(("engine", "level"), AT_EVERY_LEVEL)
def test_a_tool_runs_at_every_level(daemon, engine, level):
    result = daemon.run(TWICE[engine], {"n": 21}, profile=sandboxed_profile(engine, level))
    assert (result.outcome, result.output) == (RunOutcome.SUCCESS, {"twice": 42})
    assert (result.stdout, result.stderr) == ("hi\n", "") and not result.usage.approximate


@pytest.mark.parametrize(("engine", "level"), AT_EVERY_LEVEL)
def test_what_a_tool_answers_is_as_hostile_as_any(daemon, engine, level):
    result = daemon.run(HOSTILE[engine], profile=sandboxed_profile(engine, level))
    assert result.error_code == "INVALID_RESULT"


def of_part(engine: str, level: int, case: int) -> Any:
    if engine == "deno" and level:
        return RUNTIMES
    return SANDBOX if (level + case) % 3 else ()


@pytest.mark.parametrize(
    ("engine", "level", "source", "limits", "code"),
    [
        pytest.param(engine, level, *row, marks=of_part(engine, at, case))
        for engine, table in LIMITS.items()
        for (at, level), (case, row) in product(enumerate(LEVELS), enumerate(table))
    ],
)
def test_limits_hold_for_every_engine(daemon, engine, level, source, limits, code):
    whole = {"monty": f"def main(p):\n    {source}", "deno": f"function main() {{ {source} }}"}
    result = daemon.run(whole[engine], profile=sandboxed_profile(engine, level), **limits)
    assert result.error_code == code
