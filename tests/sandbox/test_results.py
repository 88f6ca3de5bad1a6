import pytest
import yaml

from sandbox.spec import IsolationLevel, Limits, Outcome, Preloaded, Profile, SandboxSpec


def test_what_a_function_returns_comes_back(run):
    result = run("def main(p):\n    return {'twice': p['n'] * 2, 'text': 'ü'}", {"n": 21})
    assert result.outcome == Outcome.SUCCESS
    assert result.output == {"twice": 42, "text": "ü"}
    assert result.error_code is None and result.sandbox_id


def test_nothing_is_a_result_too(run):
    assert run("def main(p):\n    return None").outcome == Outcome.SUCCESS


def test_an_exception_is_a_tool_error_with_the_line_of_the_tool(run):
    source = "import json\ndef main(p):\n    help_me(p)\ndef help_me(p):\n    json.loads('{')"
    result = run(source)
    assert (result.outcome, result.error_code) == (Outcome.FAILED, "TOOL_ERROR")
    assert result.error_message.startswith("JSONDecodeError: ")
    assert result.error_message.endswith("(line 5)")


def test_an_error_text_is_bounded_and_has_no_traceback(run):
    result = run("def main(p):\n    raise ValueError('x' * 100_000)")
    assert result.error_message == f"ValueError: {'x' * 500} (line 2)"


def test_an_error_that_cannot_even_be_printed_is_a_tool_error(run):
    source = "class Odd(Exception):\n    def __str__(self):\n        raise KeyError\n"
    result = run(source + "def main(p):\n    raise Odd")
    assert (result.error_code, result.error_message) == ("TOOL_ERROR", "Odd (line 5)")


def test_source_that_does_not_compile_is_a_tool_error_with_a_line(run):
    result = run("x = 1\ndef main(p)\n    return 1")
    assert result.error_message == "SyntaxError: expected ':' (line 2)"


def test_a_tool_without_its_entry_point_is_a_tool_error(run):
    assert "no function 'main'" in run("x = 1").error_message


@pytest.mark.parametrize(
    ("code", "expected"),
    [("NOT_FOUND", "NOT_FOUND"), ("no", "TOOL_ERROR"), ("X" * 41, "TOOL_ERROR")],
)
def test_a_tool_may_end_with_a_code_of_its_own(run, code, expected):
    source = "from toolcrib import ToolError\ndef main(p):\n    raise ToolError(p['code'], 'gone')"
    result = run(source, {"code": code})
    assert (result.outcome, result.error_code) == (Outcome.FAILED, expected)
    assert "gone" in result.error_message


def test_what_a_tool_prints_is_kept_apart_from_its_result(run):
    source = "import sys\ndef main(p):\n    print('out')\n    print('err', file=sys.stderr)\n"
    result = run(source + "    sys.stdout.write('no newline')\n    return 1")
    assert (result.output, result.stdout, result.stderr) == (1, "out\nno newline", "err\n")


@pytest.mark.parametrize(
    "value", ["{1, 2}", "object()", "float('nan')", "float('inf')", "b'x'", "(lambda: 1)"]
)
def test_a_value_that_is_not_json_is_an_invalid_result(run, value):
    result = run(f"def main(p):\n    return {value}")
    assert (result.outcome, result.error_code) == (Outcome.FAILED, "INVALID_RESULT")


@pytest.mark.parametrize("value", ["'\\0'", "'\\ud800'", "2**60", "1e999"])
def test_json_that_a_database_could_not_keep_is_an_invalid_result(run, value):
    assert run(f"def main(p):\n    return [{value}]").error_code == "INVALID_RESULT"


def test_a_process_that_ends_without_a_result_has_exited(run):
    for way in ("os._exit(0)", "sys.exit(3)", "os.kill(os.getpid(), 11) or ctypes.string_at(0)"):
        result = run(f"import os, sys, ctypes\ndef main(p):\n    {way}")
        assert (result.outcome, result.error_code) == (Outcome.FAILED, "EXITED")


def test_preloaded_modules_are_called_by_name_and_may_raise_tool_errors(daemon):
    source = "from toolcrib import ToolError\ndef greet(p):\n"
    source += "    if not p: raise ToolError('NO_NAME', 'who?')\n    return 'hello ' + p['name']"
    profile = Profile(IsolationLevel.STANDARD, preload=(("greeter", source),))
    program = Preloaded("greeter", "greet")
    good = SandboxSpec("acme", profile, Limits(), program, {"name": "you"})
    bad = SandboxSpec("acme", profile, Limits(), program, {})
    assert daemon.client.run(good).output == "hello you"
    assert daemon.client.run(bad).error_code == "NO_NAME"


def test_a_library_named_by_the_profile_can_be_imported_and_no_other(daemon):
    profile = Profile(IsolationLevel.STANDARD, libraries=(yaml.__path__[0],))
    source = "import yaml\ndef main(p):\n    return yaml.safe_load('a: [1]')"
    assert daemon.run(source, profile=profile).output == {"a": [1]}
    assert "ModuleNotFoundError" in daemon.run(source).error_message


def test_peak_memory_and_cpu_time_are_those_of_the_run(run):
    busy_ms = 200
    source = "import time\ndef main(p):\n    x = bytearray(50 << 20)\n    t = time.process_time()\n"
    usage = run(source + f"    while time.process_time() - t < {busy_ms / 1000}: pass").usage
    assert 50 << 20 <= usage.peak_memory_bytes < 60 << 20
    assert busy_ms <= usage.cpu_time_ms < 10 * busy_ms
    assert usage.wall_ms >= busy_ms and not usage.approximate


def test_a_small_run_is_not_charged_for_the_template(run):
    usage = run("def main(p):\n    return 1").usage
    assert usage.peak_memory_bytes < 4 << 20


def test_what_a_template_used_before_is_not_charged(daemon):
    loading_s = 0.5
    source = f"import time\nends = time.process_time() + {loading_s}\nkept = bytearray(50 << 20)\n"
    source += "while time.process_time() < ends: pass\ndef main(p):\n    return 1"
    profile = Profile(IsolationLevel.STANDARD, preload=(("slow", source),))
    spec = SandboxSpec("acme", profile, Limits(), Preloaded("slow", "main"), {})
    usage = daemon.client.run(spec).usage
    assert usage.peak_memory_bytes < 50 << 20
    assert usage.cpu_time_ms < loading_s * 1000
