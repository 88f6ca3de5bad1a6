"""Each limit ends a run with its own code, close to where it was set."""

import pytest

from sandbox.spec import MIB, RunOutcome

ENDLESS = "def main(p):\n    while True: pass"
PATIENT_S = 60  # for a run that another limit ends


def test_the_wall_clock_ends_a_run_that_sleeps(run):
    result = run("import time\ndef main(p):\n    time.sleep(60)", wall_s=0.4)
    assert (result.outcome, result.error_code) == (RunOutcome.TIMEOUT, "TIMEOUT")
    assert 400 <= result.usage.wall_ms < 60_000  # what it would have slept


def test_the_wall_clock_ends_a_run_that_ignores_signals(run):
    source = (
        "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, lambda *a: 0)\n"
    )
    source += "    except (OSError, ValueError): continue\ndef main(p):\n    time.sleep(60)"
    assert run(source, wall_s=0.3).outcome == RunOutcome.TIMEOUT


def test_processor_time_ends_a_run(run):
    limit_ms = 400
    result = run(ENDLESS, cpu_s=limit_ms / 1000, wall_s=PATIENT_S)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "CPU_LIMIT")
    assert limit_ms <= result.usage.cpu_time_ms < 10 * limit_ms


def test_processor_time_of_all_processes_counts_together(run):
    processes, limit_ms = 32, 1000
    source = "import os\ndef main(p):\n    for _ in range(5): os.fork() or p.clear()\n"
    source += "    while True: pass"
    result = run(source, cpu_s=limit_ms / 1000, wall_s=PATIENT_S, processes=200)
    assert result.error_code == "CPU_LIMIT"
    assert limit_ms <= result.usage.cpu_time_ms < processes * limit_ms / 2


def test_memory_taken_bit_by_bit_ends_a_run(run):
    source = "def main(p):\n    x = []\n    while True: x.append(bytearray(1 << 20))"
    result = run(source, memory_bytes=64 * MIB)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "MEMORY_LIMIT")
    assert result.usage.peak_memory_bytes == pytest.approx(64 * MIB, rel=0.05)


def test_a_single_huge_request_for_memory_is_refused_before_it_is_used(run):
    result = run("def main(p):\n    return len(bytearray(1 << 34))", memory_bytes=64 * MIB)
    assert result.error_code == "MEMORY_LIMIT"
    assert result.usage.peak_memory_bytes < 8 * MIB


def test_many_processes_share_one_memory_limit(run):
    """Each child stays far below the limit; the test is that their sum does not."""
    source = "import os, time\ndef main(p):\n    for _ in range(12):\n        if os.fork() == 0:\n"
    source += "            x = b'x' * (16 << 20)\n            time.sleep(60)\n    time.sleep(60)"
    result = run(source, memory_bytes=64 * MIB, wall_s=PATIENT_S)
    assert result.error_code == "MEMORY_LIMIT"
    assert result.usage.peak_memory_bytes <= 64 * MIB * 1.05


def test_shared_memory_counts_as_memory(run):
    source = "import mmap\ndef main(p):\n    m = mmap.mmap(-1, 200 << 20)\n"
    source += "    for at in range(0, len(m), 4096): m[at] = 1"
    assert run(source, memory_bytes=64 * MIB).error_code == "MEMORY_LIMIT"


def test_files_in_tmp_count_as_memory(run):
    source = "def main(p):\n    with open('/tmp/x', 'wb') as f:\n"
    source += "        for _ in range(100): f.write(bytes(1 << 20))"
    result = run(source, memory_bytes=32 * MIB, tmp_bytes=128 * MIB)
    assert result.error_code == "MEMORY_LIMIT"


@pytest.mark.parametrize(
    "line", ["open('/tmp/x', 'wb').write(bytes(5 << 20))", "[open(f'{n}', 'w') for n in range(99)]"]
)
def test_tmp_has_a_size_and_a_number_of_files(run, line):
    result = run(f"def main(p):\n    {line}", tmp_bytes=4 * MIB, tmp_inodes=50)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "DISK_LIMIT")


def test_a_failure_of_a_tool_with_room_left_is_its_own(run):
    result = run("def main(p):\n    open('/tmp/x', 'wb').write(bytes(1 << 20))\n    1 / 0")
    assert result.error_code == "TOOL_ERROR"


@pytest.mark.part("sandbox")
def test_a_result_may_be_as_long_as_its_limit_and_no_longer(run):
    source = "def main(p):\n    return 'x' * p['n']"
    assert len(run(source, {"n": MIB - 2}, output_bytes=MIB).output) == MIB - 2
    result = run(source, {"n": MIB - 1}, output_bytes=MIB)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "OUTPUT_LIMIT")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_of_text_ends_a_run_and_keeps_head_and_tail(run, stream):
    source = "import sys\ndef main(p):\n    n = 0\n    while True:\n        n += 1\n"
    source += f"        sys.{stream}.write(f'line {{n}} ' + 'x' * 5000 + '\\n')"
    result = run(source, output_bytes=MIB)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "OUTPUT_LIMIT")
    text = getattr(result, stream)
    assert text.startswith("line 1 ") and "cut" in text and len(text) < 70_000


def test_long_text_below_the_limit_keeps_head_and_tail(run):
    result = run("def main(p):\n    for n in range(50_000): print('line', n)")
    assert result.outcome == RunOutcome.SUCCESS
    assert result.stdout.startswith("line 0\n") and result.stdout.endswith("line 49999\n")
    assert len(result.stdout) < 66_000


@pytest.mark.parametrize(
    "body", ["os.fork()", "threading.Thread(target=time.sleep, args=(60,)).start()"]
)
def test_a_bomb_of_processes_or_threads_ends_a_run(run, body):
    source = f"import os, threading, time\ndef main(p):\n    while True: {body}"
    result = run(source, processes=20, wall_s=PATIENT_S)
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "PROCESS_LIMIT")


def test_the_number_of_processes_is_exact(run):
    source = "import os, time\ndef main(p):\n    n = 0\n    try:\n        while n < 99:\n"
    source += "            if os.fork() == 0: time.sleep(60)\n            n += 1\n"
    source += "    except BlockingIOError: return n"
    assert run(source, processes=10).output == 9


def test_open_files_are_limited(run):
    result = run("def main(p):\n    x = [open('/dev/null') for _ in range(5000)]")
    assert "Too many open files" in result.error_message
