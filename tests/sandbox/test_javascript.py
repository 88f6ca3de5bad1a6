"""JavaScript tools: what a tool's author is promised, and that it holds behind every wall."""

import json
import os
import socket
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.backends import javascript
from sandbox.inside import frames
from sandbox.inside import javascript as inside
from sandbox.spec import MIB, IsolationLevel, Language, Outcome, Profile

RUNTIMES = pytest.mark.part("runtimes")
LEVELS = (
    IsolationLevel.STANDARD,
    pytest.param(IsolationLevel.STRICT, marks=RUNTIMES),
    pytest.param(IsolationLevel.RESTRICTED, marks=RUNTIMES),
)


@dataclass(frozen=True)
class Said:
    """`answer` is the frame: kind and JSON; `text` is all that was printed."""

    answer: bytes
    text: str

    @property
    def result(self) -> Any:
        assert self.answer[:1] == b"R", self.answer
        return json.loads(self.answer[1:])

    @property
    def error(self) -> tuple[str, str]:
        assert self.answer[:1] == b"E", self.answer
        said = json.loads(self.answer[1:])
        return said["code"], said["message"]


def unwalled(source: str, parameters: Any = None, entry_point: str = "main") -> Said:
    """What the tool's side alone makes of a job: Deno as a slot becomes it, without the slot."""
    program = inside.Runtime(javascript.runtime(), javascript.SCRIPT, new_code=True)
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        inside.command(program, 256 * MIB),
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        stderr=subprocess.PIPE,
        env=inside.ENVIRONMENT,
        cwd="/",
        text=True,
    )
    with ours:
        theirs.close()
        job = {"program": {"source": source, "entry_point": entry_point}, "parameters": parameters}
        frames.send(ours, json.dumps(job).encode())
        try:
            answer = frames.FrameReader(ours, 10 * MIB).read()
        except frames.ConnectionEnded:
            answer = b""
    return Said(answer, process.communicate(timeout=20)[1])


# The contract with the author of a tool.


WAYS = (
    "function main(p) { return { twice: p.n * 2, text: 'ü' } }",
    "export async function main(p) { return { twice: await p.n * 2, text: 'ü' } }",
    "const main = ({ n }) => ({ twice: n * 2, text: 'ü' });\nexport { main };",
    "let main = 1; main = (p) => ({ twice: p.n * 2, text: 'ü' }) // at the end",
)


@pytest.mark.parametrize(
    "source", [WAYS[0], *(pytest.param(one, marks=RUNTIMES) for one in WAYS[1:])]
)
def test_main_may_be_written_in_any_way_javascript_has(source):
    assert unwalled(source, {"n": 21}).result == {"twice": 42, "text": "ü"}


@RUNTIMES
def test_another_entry_point_may_be_named():
    assert unwalled("function add(p) { return p[0] + p[1] }", [1, 2], "add").result == 3


@RUNTIMES
def test_no_value_is_null():
    assert unwalled("function main() {}").result is None


def test_an_error_has_the_line_of_the_tool_it_came_from():
    source = "function main(p) {\n  return help(p)\n}\nconst help = (p) => p.a.b"
    code, message = unwalled(source, {}).error
    assert code == "TOOL_ERROR"
    assert message == "TypeError: Cannot read properties of undefined (reading 'b') (line 4)"


@RUNTIMES
def test_source_that_cannot_be_read_is_a_tool_error_with_a_line():
    code, message = unwalled("const x = 1;\nfunction main(p {}").error
    assert code == "TOOL_ERROR"
    assert message.startswith("SyntaxError: ") and message.endswith("(line 2)")


@RUNTIMES
@pytest.mark.parametrize("name", ["main", "main };\nimport 'x'"])
def test_a_tool_without_its_entry_point_is_a_tool_error(name):
    code, message = unwalled("const other = 1", None, name).error
    assert (code, message) == ("TOOL_ERROR", f"the tool has no function '{name}'")


@pytest.mark.parametrize(
    "thrown",
    [
        "new ToolError('NOT_FOUND', 'gone')",
        pytest.param("{code: 'NOT_FOUND', message: 'gone'}", marks=RUNTIMES),
    ],
)
def test_a_tool_may_end_with_a_code_of_its_own(thrown):
    assert unwalled(f"function main() {{ throw {thrown} }}").error == ("NOT_FOUND", "gone")


@RUNTIMES
@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        ("{code: 'no', message: 'gone'}", "gone"),
        ("{code: 'OUT', message: 3}", "3"),
        ("'only words'", "only words"),
        ("null", "null"),
        ("Object.assign(new Error('gone'), {code: 'ENOENT'})", "Error: gone (line 1)"),
    ],
)
def test_whatever_else_is_thrown_is_a_tool_error(thrown, message):
    said = unwalled(f"function main() {{ throw {thrown} }}")
    assert said.error == ("TOOL_ERROR", message)


@RUNTIMES
def test_an_error_text_is_bounded():
    _code, message = unwalled("function main() { throw new Error('x'.repeat(99999)) }").error
    assert message == f"Error: {'x' * 500} (line 1)"


@RUNTIMES
@pytest.mark.parametrize("late", ["setTimeout(() => { null.x })", "Promise.reject(Error('no'))"])
def test_an_error_nobody_waits_for_ends_the_run(late):
    code, _ = unwalled(f"function main() {{ {late}; return new Promise(() => 1) }}").error
    assert code == "TOOL_ERROR"


@RUNTIMES
def test_waiting_for_nothing_is_an_error_and_not_a_timeout():
    _code, message = unwalled("function main() { return new Promise(() => 1) }").error
    assert message == "the tool waits for what will never happen"


@RUNTIMES
@pytest.mark.parametrize("value", ["NaN", "[1, -Infinity]", "10n", "() => 1", "Symbol()", "loop"])
def test_what_json_cannot_say_is_an_invalid_result(value):
    source = f"const loop = []; loop.push(loop);\nfunction main() {{ return {value} }}"
    assert unwalled(source).error[0] == "INVALID_RESULT"


def test_all_ways_to_print_print_and_none_reaches_the_answer():
    source = """
      import process from "node:process";
      function main() {
        console.log("log", { a: 1 }); console.info("info"); console.error("error");
        console.table([7]); console.dir({ b: 2 }); console.group("group"); console.groupEnd();
        console.count(); console.time(); console.timeEnd(); console.clear(); console.assert(0);
        globalThis.process.stdout.write("process\\n");
        Deno.stdout.writeSync(new TextEncoder().encode("Deno\\n"));
        return 1;
      }"""
    said = unwalled(source)
    assert said.result == 1
    for word in ("log { a: 1 }", "info", "error", "7", "b: 2", "group", "default: 1", "process"):
        assert word in said.text


FORBIDDEN = (
    "Deno.readTextFileSync('/etc/passwd')",
    "Deno.writeTextFileSync('/tmp/x', '')",
    "new Deno.Command(Deno.execPath()).outputSync()",
    "Deno.listen({ port: 0 })",
    "Deno.dlopen('/lib/x86_64-linux-gnu/libc.so.6', {})",
    "Deno.hostname()",
    "fetch('http://127.0.0.1/')",
    "import('https://127.0.0.1/x.js')",
    "import('npm:left-pad')",
    "import('node:fs').then((fs) => fs.readFileSync('/etc/passwd'))",
    "import('node:child_process').then((c) => c.execSync('id'))",
)


def test_deno_itself_permits_nothing():
    """Each is tried by itself; what comes back was permitted."""
    tries = ", ".join(f"async () => {expression}" for expression in FORBIDDEN)
    source = f"""async function main() {{
      const permitted = [];
      for (const [number, attempt] of [{tries}].entries()) {{
        try {{ await attempt(); permitted.push(number) }} catch {{}}
      }}
      return permitted;
    }}"""
    assert [FORBIDDEN[number] for number in unwalled(source).result] == []


def test_the_environment_is_empty_for_a_tool():
    assert unwalled("function main() { return Deno.env.get('HOME') ?? 'nothing' }").result == (
        "nothing"
    )


# What the slot makes of it.


def test_memory_may_not_become_code_where_the_level_forbids_it():
    compiling = inside.Runtime("deno", "x.js", new_code=True)
    (flags,) = [one for one in inside.command(compiling, 64 * MIB) if "v8-flags" in one]
    assert "--jitless" not in flags
    shut = inside.command(compiling._replace(new_code=False), 64 * MIB)
    assert any("--jitless" in one for one in shut)


@pytest.mark.parametrize("memory", [1, 16, 64, 256, 4096])
def test_the_engine_has_less_memory_than_the_run(memory):
    command = inside.command(inside.Runtime("deno", "x.js", new_code=True), memory * MIB)
    (flags,) = [one for one in command if "v8-flags" in one]
    sizes = dict(flag.split("=") for flag in flags.split(",") if "size" in flag)
    assert 1 <= int(sizes["--max-old-space-size"]) <= memory
    assert 1 <= int(sizes["--max-semi-space-size"]) <= 16


def test_the_runtime_is_found_by_running_it():
    assert javascript.flaw() is None
    assert os.access(javascript.runtime(), os.X_OK)
    assert javascript.executables("/runtime/deno")[0] == "/runtime/deno"


# Behind the walls.


def profile(level: IsolationLevel) -> Profile:
    return Profile(level, language=Language.JAVASCRIPT)


@pytest.fixture(params=LEVELS)
def level(request) -> IsolationLevel:
    return request.param


def test_a_tool_in_javascript_runs_at_every_level(daemon, level):
    source = "async function main(p) {\n  console.log('hi');\n  return { twice: p.n * 2 }\n}"
    result = daemon.run(source, {"n": 21}, profile=profile(level))
    assert (result.outcome, result.output) == (Outcome.SUCCESS, {"twice": 42})
    assert result.stdout == "hi\n" and result.stderr == ""
    assert not result.usage.approximate


def test_what_a_tool_in_javascript_answers_is_as_hostile_as_any(daemon, level):
    source = "function main() { return ['\\0'] }"
    assert daemon.run(source, profile=profile(level)).error_code == "INVALID_RESULT"


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    ("source", "limits", "code"),
    [
        ("const a = []; for (;;) a.push({ a })", {"memory_bytes": 64 * MIB}, "MEMORY_LIMIT"),
        (
            "const a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))",
            {"memory_bytes": 64 * MIB},
            "MEMORY_LIMIT",
        ),
        ("for (;;);", {"cpu_s": 0.3}, "CPU_LIMIT"),
        ("for (;;);", {"wall_s": 0.5}, "TIMEOUT"),
        ("for (;;) console.log('x'.repeat(9999))", {"output_bytes": 1 << 16}, "OUTPUT_LIMIT"),
        ("return 'x'.repeat(1 << 20)", {"output_bytes": 1 << 16}, "OUTPUT_LIMIT"),
    ],
)
def test_limits_hold_for_javascript(daemon, level, source, limits, code):
    source = f"function main() {{ {source} }}"
    assert daemon.run(source, profile=profile(level), **limits).error_code == code


def test_garbage_is_collected_before_the_limit_is_reached(daemon, level):
    source = """function main() {
      const kept = [];
      for (let i = 0; i < 300000; i++) kept[i % 5000] = { i, list: [i, i + 1], text: `k${i}` };
      return kept.length;
    }"""
    result = daemon.run(source, profile=profile(level), memory_bytes=64 * MIB)
    assert (result.output, result.error_code) == (5000, None)


def test_a_process_of_javascript_that_ends_itself_has_exited(daemon, level):
    result = daemon.run("function main() { Deno.exit(0) }", profile=profile(level))
    assert (result.outcome, result.error_code) == (Outcome.FAILED, "EXITED")
