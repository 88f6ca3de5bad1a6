"""Monty, the small Python for expressions and glue: its contract, and the walls around the VM."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from sandbox.backends import monty
from sandbox.inside import frames
from sandbox.spec import MIB, Backend, IsolationLevel, Limits, Outcome, Profile
from tests.sandbox.conftest import ROOT

LEVELS = (IsolationLevel.STANDARD, IsolationLevel.STRICT, IsolationLevel.RESTRICTED)

# A slot without its walls; what it was given before its job counts as nothing.
SERVE = """
import socket, sys
from sandbox.inside import monty
monty.serve_one(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], 1 << 30)
"""


class Said:
    """The answer of one job, and what the tool printed to both streams."""

    def __init__(self, answer: bytes, out: str, err: str) -> None:
        self._answer, self.out, self.err = answer, out, err

    @property
    def result(self) -> Any:
        assert self._answer[:1] == b"R", (self._answer, self.err)
        return json.loads(self._answer[1:])

    @property
    def error(self) -> tuple[str, str]:
        assert self._answer[:1] == b"E", (self._answer, self.err)
        said = json.loads(self._answer[1:])
        return said["code"], said["message"]


def unwalled(source: str, parameters: Any = None, entry_point: str = "main", **limits: Any) -> Said:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SERVE, str(theirs.fileno()), monty.program()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], **pipes)
    with ours:
        theirs.close()
        job = {"program": {"source": source, "entry_point": entry_point}, "parameters": parameters}
        wanted = Limits(**limits).to_wire() | {"processes": 1 << 16}
        frames.send(ours, json.dumps(wanted).encode(), json.dumps(job).encode())
        try:
            answer = frames.FrameReader(ours, 10 * MIB).read()
        except frames.ConnectionEnded:
            answer = b""
    return Said(answer, *process.communicate(timeout=20))


# The contract with the author of a tool.


def test_a_function_gets_its_parameters_and_gives_json():
    source = "def main(p):\n    return {'twice': p['n'] * 2, 'all': (1, None, True, p['text'])}"
    said = unwalled(source, {"n": 21, "text": "ü"})
    assert said.result == {"twice": 42, "all": [1, None, True, "ü"]}


def test_another_entry_point_may_be_named():
    assert unwalled("def add(p):\n    return p[0] + p[1]", [1, 2], "add").result == 3


def test_both_streams_are_kept_apart():
    source = "import sys\ndef main(p):\n    print('out')\n    print('err', file=sys.stderr)"
    said = unwalled(source)
    assert (said.result, said.out, said.err) == (None, "out\n", "err\n")


def test_an_error_has_the_line_of_the_tool_it_came_from():
    source = "def main(p):\n    return help(p)\ndef help(p):\n    return p['missing']"
    assert unwalled(source, {}).error == ("TOOL_ERROR", "KeyError: missing (line 4)")


def test_source_that_cannot_be_read_is_a_tool_error_with_a_line():
    code, message = unwalled("x = 1\ndef main(p)\n    return 1").error
    assert code == "TOOL_ERROR"
    assert message.startswith("SyntaxError: ") and message.endswith("(line 2)")


def test_what_this_python_does_not_have_is_a_tool_error():
    code, message = unwalled("import socket\ndef main(p):\n    return 1").error
    assert (code, message) == (
        "TOOL_ERROR",
        "ModuleNotFoundError: No module named 'socket' (line 1)",
    )


@pytest.mark.part("sandbox", but_each=2)
@pytest.mark.parametrize("name", ["main", "class", "main)(1", "1"])
def test_a_tool_without_its_entry_point_is_a_tool_error(name):
    code, message = unwalled("other = 1", None, name).error
    assert (code, message) == ("TOOL_ERROR", f"the tool has no function {name!r}")


def test_a_tool_may_end_with_a_code_of_its_own():
    source = (
        "from toolcrib import ToolError\ndef main(p):\n    raise ToolError('NOT_FOUND', 'gone')"
    )
    assert unwalled(source).error == ("NOT_FOUND", "gone")


def test_a_code_that_is_none_becomes_a_tool_error():
    source = "from toolcrib import ToolError\ndef main(p):\n    raise ToolError('no', 'gone')"
    assert unwalled(source).error == ("TOOL_ERROR", "ToolError: gone")


def test_an_error_after_one_that_was_caught_is_not_mistaken_for_it():
    source = "from toolcrib import ToolError\ndef main(p):\n"
    source += "    try:\n        raise ToolError('NOT_FOUND', 'gone')\n"
    source += "    except Exception:\n        raise ValueError('other')"
    assert unwalled(source).error == ("TOOL_ERROR", "ValueError: other (line 6)")


def test_an_error_text_is_bounded():
    _code, message = unwalled("def main(p):\n    raise ValueError('x' * 99999)").error
    assert len(message) < 600 and message.startswith("ValueError: xxx")


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize("value", ["{1, 2}", "b'x'", "float('nan')", "main", "{(1, 2): 3}"])
def test_what_json_cannot_say_is_an_invalid_result(value):
    code, message = unwalled(f"def main(p):\n    return {value}").error
    assert code == "INVALID_RESULT"
    assert message.startswith("the result is not JSON: ")


@pytest.mark.parametrize(
    "expression", ["[0] * (1 << 40)", "'x' * (1 << 30)", "[list(range(99999)) for _ in range(999)]"]
)
def test_more_memory_than_allowed_is_refused_by_the_vm_already(expression):
    said = unwalled(f"def main(p):\n    return {expression}", memory_bytes=64 * MIB)
    assert said.error[0] == "MEMORY_LIMIT"


def test_endless_recursion_is_an_error():
    _code, message = unwalled("def main(p):\n    return main(p)").error
    assert message.startswith("RecursionError: ")


@pytest.mark.part("sandbox", but_each=2)
@pytest.mark.parametrize(
    "expression",
    ["open('/etc/passwd').read()", "os.listdir('/')", "os.environ", "os.urandom(1)", "os.system"],
)
def test_the_vm_has_nothing_of_the_machine(expression):
    source = f"import os\ndef main(p):\n    return str({expression})"
    assert unwalled(source).error[0] == "TOOL_ERROR"


# The backend.


def test_monty_is_found_by_working_something_out():
    assert monty.MontyBackend(lambda profile: profile).flaw() is None


def test_its_slots_are_ours_with_the_vm_beside_the_libraries_of_the_profile():
    profile = Profile(IsolationLevel.STRICT, libraries=("/usr/lib/one",), backend=Backend.MONTY)
    wider = monty.MontyBackend(lambda made: made).template(profile)
    assert wider == replace(profile, libraries=("/usr/lib/one", *monty.libraries()))
    assert all(os.path.exists(path) for path in monty.libraries())
    assert os.path.basename(monty.libraries()[-1]) == "monty"


# Behind the walls.


@pytest.fixture(params=LEVELS)
def profile(request) -> Profile:
    return Profile(request.param, backend=Backend.MONTY)


def test_a_tool_in_monty_runs_at_every_level(daemon, profile):
    source = "def main(p):\n    print('hi')\n    return {'twice': p['n'] * 2}"
    result = daemon.run(source, {"n": 21}, profile=profile)
    assert (result.outcome, result.output) == (Outcome.SUCCESS, {"twice": 42})
    assert result.stdout == "hi\n" and not result.usage.approximate


def test_what_a_tool_in_monty_answers_is_as_hostile_as_any(daemon, profile):
    assert daemon.run("def main(p):\n    return [2**60]", profile=profile).error_code == (
        "INVALID_RESULT"
    )


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    ("source", "limits", "code"),
    [
        ("x = [0]\n    while True: x = x + x", {"memory_bytes": 64 * MIB}, "MEMORY_LIMIT"),
        ("while True: pass", {"cpu_s": 0.2}, "CPU_LIMIT"),
        ("while True: pass", {"wall_s": 0.3}, "TIMEOUT"),
        ("while True: print('x' * 9999)", {"output_bytes": 1 << 16}, "OUTPUT_LIMIT"),
        ("return 'x' * (1 << 20)", {"output_bytes": 1 << 16}, "OUTPUT_LIMIT"),
    ],
)
def test_limits_hold_for_monty(daemon, profile, source, limits, code):
    source = f"def main(p):\n    {source}"
    assert daemon.run(source, profile=profile, **limits).error_code == code
