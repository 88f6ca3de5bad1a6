"""What JavaScript tools have beyond what each engine promises: test_engines.py."""

import os

import pytest

from sandbox.backends import deno
from sandbox.inside import deno_run as inside
from sandbox.spec import MIB, IsolationLevel, Language, Profile, RunOutcome
from tests.sandbox.engines import in_deno

RUNTIMES = pytest.mark.part("runtimes")
LEVELS = (
    IsolationLevel.STANDARD,
    pytest.param(IsolationLevel.STRICT, marks=RUNTIMES),
    pytest.param(IsolationLevel.RESTRICTED, marks=RUNTIMES),
)


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
    answer = in_deno(source)
    assert answer.result == 1
    for word in ("log { a: 1 }", "info", "error", "7", "b: 2", "group", "default: 1", "process"):
        assert word in answer.err


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
    assert [FORBIDDEN[number] for number in in_deno(source).result] == []


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
    assert deno.flaw() is None
    assert os.access(deno.runtime(), os.X_OK)
    assert deno.executables("/runtime/deno")[0] == "/runtime/deno"


# Inside the sandbox.


def profile(level: IsolationLevel) -> Profile:
    return Profile(level, language=Language.JAVASCRIPT)


@pytest.fixture(params=LEVELS)
def level(request) -> IsolationLevel:
    return request.param


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
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "EXITED")
