import pytest
import yaml

from sandbox.spec import IsolationLevel, Limits, Preloaded, Profile, RunOutcome, SandboxSpec


def test_a_process_that_ends_without_a_result_has_exited(run):
    for way in ("os._exit(0)", "sys.exit(3)", "os.kill(os.getpid(), 11) or ctypes.string_at(0)"):
        result = run(f"import os, sys, ctypes\ndef main(p):\n    {way}")
        assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "EXITED")


def test_what_a_tool_says_as_it_ends_itself_is_its_error(run):
    source = "import sys\ndef main(p):\n    sys.exit('no such city')"
    result = run(source)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "TOOL_ERROR")
    assert result.error_message == "SystemExit: no such city (line 3)"
    long = run("def main(p):\n    raise SystemExit('x' * 100_000)").error_message
    assert 500 <= len(long) < 600
    message = run("import sys\ndef main(p):\n    sys.exit(['a', {'b': 1}])").error_message
    assert message == "SystemExit: ['a', {'b': 1}] (line 3)"


@pytest.mark.parametrize(
    "number", [1917043659912705296, -(2**63), 10**23, 10**299, -(10**299)], ids=range(5)
)
def test_an_integer_is_exact(run, number):
    assert run(f"def main(p):\n    return {{'id': {number}}}").output == {"id": number}


def test_an_integer_of_more_than_300_digits_is_refused(run):
    for sign in ("", "-"):
        result = run(f"def main(p):\n    return [{sign}10**300]")
        assert (result.error_code, "more than 300 digits" in result.error_message) == (
            "INVALID_RESULT",
            True,
        )


def test_an_exit_without_words_has_none(run):
    for code in ("", "None", "0", "3", "True"):
        result = run(f"import sys\ndef main(p):\n    sys.exit({code})")
        assert (result.error_code, "SystemExit" in result.error_message) == ("EXITED", False)


def test_words_that_cannot_be_said_end_the_run_all_the_same(run):
    source = "class Odd:\n    def __str__(self): raise SystemExit('inner')\n"
    result = run(source + "def main(p):\n    raise SystemExit(Odd())")
    assert (result.error_code, result.error_message) == ("TOOL_ERROR", "SystemExit (line 4)")


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
