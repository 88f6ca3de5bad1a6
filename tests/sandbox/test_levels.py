"""Each level has the layers of its line in the table, seen from inside and from outside."""

import pytest

from sandbox.levels import LAYERS, clamp_limits, strongest
from sandbox.spec import IsolationLevel, Limits, Profile, RunOutcome

NAMESPACED = [IsolationLevel.STANDARD, IsolationLevel.STRICT, IsolationLevel.RESTRICTED]
CLOSED = NAMESPACED[1:]
TRY = """
def main(p):
    try:
        return str(eval(p["expression"]))
    except BaseException as error:
        return type(error).__name__
"""


@pytest.fixture(params=NAMESPACED)
def level(request) -> IsolationLevel:
    return request.param


def ask(run, level: IsolationLevel, expression: str) -> str:
    result = run(TRY, {"expression": expression}, profile=Profile(level))
    assert result.outcome == RunOutcome.SUCCESS, result
    return result.output


def test_devices_are_those_of_the_table(run, level):
    seen = ask(run, level, "sorted(__import__('os').listdir('/dev'))")
    more = ["fd", "shm"] if level == IsolationLevel.STANDARD else []
    assert seen == str(sorted(["null", "urandom", "zero", *more]))


@pytest.mark.parametrize("level", CLOSED)
def test_there_are_no_processes_to_see_above_standard(run, level):
    assert ask(run, level, "__import__('os').listdir('/proc')") == "[]"


@pytest.mark.parametrize("level", CLOSED)
def test_there_are_no_programs_above_standard(run, level):
    assert ask(run, level, "__import__('os').listdir('/usr/bin')") == "FileNotFoundError"
    assert ask(run, level, "sorted(__import__('os').listdir('/usr'))") == "['lib', 'lib64']"


@pytest.mark.parametrize("level", CLOSED)
def test_even_the_interpreter_cannot_be_executed_above_standard(run, level):
    found = "next(p for p in ('/python/bin', '/usr/bin') if __import__('os').path.isdir(p))"
    expression = f"__import__('os').execv({found} + '/python3.13', ['python'])"
    assert ask(run, level, expression) == "PermissionError"


def test_programs_run_at_standard(run):
    expression = "__import__('subprocess').check_output(['/usr/bin/env', 'echo', 'yes'])"
    assert ask(run, IsolationLevel.STANDARD, expression) == r"b'yes\n'"


def test_memory_becomes_executable_below_restricted_only(run, level):
    expression = "type(__import__('mmap').mmap(-1, 4096, prot=7)).__name__"
    wanted = "PermissionError" if level == IsolationLevel.RESTRICTED else "mmap"
    assert ask(run, level, expression) == wanted


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_nothing_in_a_writable_place_can_be_loaded(run, level, place):
    source = """
import ctypes, glob, shutil
def main(p):
    library = glob.glob("/usr/lib/*/libm.so.6")[0]
    try:
        shutil.copyfile(library, p["place"] + "/copy.so")
        ctypes.CDLL(p["place"] + "/copy.so")
    except OSError as error:
        return str(error)
    return "loaded"
"""
    output = run(source, {"place": place}, profile=Profile(level)).output
    assert "failed to map" in output or "No such file" in output


def test_restricted_code_has_threads_and_no_processes(run):
    fork = "__import__('os').fork()"
    thread = "(lambda t: (t.start(), t.join()))(__import__('threading').Thread())"
    assert ask(run, IsolationLevel.RESTRICTED, fork) == "PermissionError"
    assert ask(run, IsolationLevel.RESTRICTED, thread) == "(None, None)"


def test_a_run_is_alone_in_its_process_group(run, level):
    source = "import os\ndef main(p):\n    return os.getpgrp() == os.getsid(0) == os.getpid() == 1"
    assert run(source, profile=Profile(level)).output is True


def test_a_level_has_no_more_processes_than_its_line_says():
    wanted = Limits(processes=1000)
    counts = {level: clamp_limits(level, wanted, True).processes for level in IsolationLevel}
    assert counts == {level: LAYERS[level].processes for level in IsolationLevel}
    assert clamp_limits(IsolationLevel.STRICT, Limits(processes=3), True).processes == 3


def test_strict_has_a_single_process_where_nothing_counts_memory():
    assert clamp_limits(IsolationLevel.STRICT, Limits(), False).processes == 1
    assert clamp_limits(IsolationLevel.RESTRICTED, Limits(), False).processes == 24


def test_the_strongest_level_wins():
    assert strongest(IsolationLevel.STRICT, IsolationLevel.NONE) == IsolationLevel.STRICT


def test_the_devices_of_the_host_are_not_touched(run, level):
    source = """
import os
def main(p):
    refused = []
    for change in (lambda: os.utime("/dev/null"), lambda: os.chmod("/dev/null", 0o600)):
        try:
            change()
        except OSError as error:
            refused.append(error.errno)
    with open("/dev/null", "wb") as device:
        device.write(b"x")
    return refused
"""
    assert len(run(source, profile=Profile(level)).output) == 2


@pytest.mark.parametrize("level", CLOSED)
def test_a_futex_on_a_shared_page_wakes_no_other_run(run, level):
    source = """
import ctypes, mmap
def main(p):
    with open(ctypes.__file__, "rb") as file:
        page = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    address = ctypes.c_ulong(0)
    libc = ctypes.CDLL(None, use_errno=True)
    view = ctypes.c_int.from_buffer(bytearray(8))
    libc.syscall(202, ctypes.byref(view), 1, 1, None, None, 0)
    return ctypes.get_errno()
"""
    assert run(source, profile=Profile(level)).output == 1
