"""`python -m tests.sandbox.bench_operations`: what counting costs an open and a close.

Two processes, one of them counted, take turns in rounds of a few milliseconds, so that what else
the machine does hits both alike.
"""

import array
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

from sandbox.daemon.limits.operations import Counter

ROUNDS, PAIRS = 300, 100
WORK = """
import array, os, socket, sys, time
from sandbox.inside.filter import call_rules, seccomp
from sandbox.inside.layers import libc
channel = socket.socket(fileno=int(sys.argv[1]))
machine = os.uname().machine
wall = seccomp.SeccompFilter(machine, call_rules.FilterRequirements("usual", new_code=True))
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
if sys.argv[2] == "counted":
    listener = seccomp.Counting(machine).listen()
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))
    channel.sendmsg([b"x"], [rights])
    os.close(listener)
wall.load()
while work := channel.recv(16):
    begun = time.perf_counter_ns()
    for _ in range(int(work)):
        os.close(os.open("/dev/null", os.O_RDONLY))
    channel.send(b"%d" % (time.perf_counter_ns() - begun))
"""


class Worker:
    def __init__(self, kind: str) -> None:
        self.channel, far = socket.socketpair()
        command = [sys.executable, "-c", WORK, str(far.fileno()), kind]
        root = Path(__file__).resolve().parents[2]
        self.process = subprocess.Popen(command, pass_fds=[far.fileno()], cwd=root)
        far.close()
        self.times_us: list[float] = []

    def listener(self) -> int:
        _, ancillary, _, _ = self.channel.recvmsg(1, socket.CMSG_SPACE(4))
        return array.array("i", ancillary[0][2])[0]

    def round(self) -> None:
        self.channel.send(b"%d" % PAIRS)
        self.times_us.append(int(self.channel.recv(32)) / PAIRS / 1000)

    def close(self) -> None:
        self.channel.close()
        self.process.wait()


def report(name: str, times_us: list[float]) -> None:
    tenths = statistics.quantiles(times_us, n=20)
    print(f"{name:24} p05 {tenths[0]:6.2f}   p50 {tenths[9]:6.2f}   p95 {tenths[18]:6.2f} us")


def main() -> None:
    counter, plain, counted = Counter(), Worker("plain"), Worker("counted")
    counter.start()
    directory = os.open("/dev/shm", os.O_PATH) if "--directory" in sys.argv else None
    tally = counter.adopt(counted.listener(), directory)
    for _ in range(ROUNDS):
        plain.round()
        counted.round()
    assert tally.count() >= ROUNDS * PAIRS
    both = zip(counted.times_us, plain.times_us, strict=True)
    report("open and close", plain.times_us)
    report("the same, counted", counted.times_us)
    report("counting one operation", [one - other for one, other in both])
    for worker in (plain, counted):
        worker.close()
    tally.close()
    counter.close()


if __name__ == "__main__":
    main()
