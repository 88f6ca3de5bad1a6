import yaml

from sandbox.spec import IsolationLevel, Limits, Outcome, Preloaded, Profile, SandboxSpec


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
