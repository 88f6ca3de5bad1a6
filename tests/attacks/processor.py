"""More processor time than the limit, and attempts to use it uncounted."""

import hashlib
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.attacks.attack import ALL, attack
from tests.attacks.kit import Parameters, call, in_child, libc, prctl, what_works
from tests.attacks.sources import Body

_ENDS = ("CPU_LIMIT", "TOOL_ERROR", "EXITED", "PROCESS_LIMIT")


def busy(**limits: Any) -> Callable[[Body], Body]:
    """It has worked when it has had `beyond_s` more than the limit, or about as much."""
    return attack(levels=ALL, ends=_ENDS, counted=True, **{"cpu_s": 0.1, "wall_s": 20, **limits})


@busy()
def computes_for_ever(p: Parameters) -> object:
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        pass
    return [time.process_time()]


@busy()
def searches_with_a_pattern_that_never_ends(p: Parameters) -> object:
    """In C, holding the interpreter's lock: no signal handler of Python runs meanwhile."""
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        re.match(r"(a|a)*$", "a" * 22 + "b")
    return [time.process_time()]


@busy()
def raises_a_number_to_a_tower_of_powers(p: Parameters) -> object:
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        (7 ** (9**6)).bit_length()
    return [time.process_time()]


@busy()
def hashes_in_threads(p: Parameters) -> object:
    """Outside of the interpreter's lock, on every processor."""
    rounds = round(1_500_000 * p["beyond_s"])
    jobs = [threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"x", b"y", rounds))
            for _ in range(4)]  # fmt: skip
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return [time.process_time()]


@busy()
def computes_in_many_processes(p: Parameters) -> object:
    """Each of them alone stays below the limit."""

    def child() -> None:
        while time.process_time() < 0.09:
            pass

    children = [in_child(child) for _ in range(16)]
    for one in children:
        os.waitpid(one, 0)
    return [sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])]


@busy()
def computes_in_children_that_end_at_once(p: Parameters) -> object:
    """A new one before the old one has been looked at."""
    until = time.monotonic() + 0.5 + p["beyond_s"]
    while time.monotonic() < until:
        os.waitpid(in_child(lambda: sum(range(20_000))), 0)
    return [sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])]


@busy()
def computes_deaf_to_the_signal_of_its_limit(p: Parameters) -> object:
    for number in (signal.SIGXCPU, signal.SIGTERM, signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_IGN)
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        pass
    return [time.process_time()]


@busy()
def has_the_kernel_compute(p: Parameters) -> object:
    """System time costs as much as any other."""
    zero, null = os.open("/dev/zero", os.O_RDONLY), bytearray(1 << 20)
    began = time.process_time()
    while time.process_time() - began < p["limits"]["cpu_s"] + p["beyond_s"]:
        os.readv(zero, [null])
    return [os.times().system]


@busy()
def interrupts_itself_all_the_time(p: Parameters) -> object:
    libc.signal(signal.SIGALRM, libc.abs)  # one of Python would be interrupted before it is through
    signal.setitimer(signal.ITIMER_REAL, 0.00001, 0.00001)
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        pass
    return [time.process_time()]


@busy()
def gives_up_its_turn_all_the_time(p: Parameters) -> object:
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        call("sched_yield")
    return [time.process_time()]


@busy()
def compiles_a_source_that_takes_for_ever(p: Parameters) -> object:
    text = "(" * 80 + "1" + ")" * 80
    while time.process_time() < p["limits"]["cpu_s"] + p["beyond_s"]:
        compile(f"x = [{','.join([text] * 50)}]", "<x>", "exec")
    return [time.process_time()]


@attack()
def takes_precedence(p: Parameters) -> object:
    """Priorities, real-time scheduling, and processors for itself."""
    half = {next(iter(os.sched_getaffinity(0)))}
    return what_works(
        {
            "nice": lambda: os.nice(-5),
            "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
            "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
            "idle": lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
            "affinity": lambda: os.sched_setaffinity(0, half),
            "disk": lambda: call("ioprio_set", 1, 0, 0x2000),
        }
    )


@attack()
def lets_itself_be_woken_more_exactly(p: Parameters) -> object:
    return what_works({"slack": lambda: prctl(29, 1), "speculation": lambda: prctl(53, 0, 4, 0)})


@attack(levels=ALL, toothless="nobody may raise a hard limit, sandbox or not")
def raises_its_limits(p: Parameters) -> object:
    kinds = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    hard = {name: resource.getrlimit(kind)[1] for name, kind in kinds.items()}
    return what_works(
        {
            name: lambda n=name: resource.setrlimit(kinds[n], (hard[n] + 1, hard[n] + 1))
            for name in kinds
            if hard[name] != resource.RLIM_INFINITY
        }
    )


@attack(levels=ALL)
def finds_limits_that_are_not_there(p: Parameters) -> object:
    """A resource without a limit goes unnoticed until it is used up for all."""
    names = ("CORE", "NOFILE", "NPROC", "FSIZE", "DATA", "CPU", "MEMLOCK", "MSGQUEUE")
    hard = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in names}
    return [name for name in names if hard[name] == resource.RLIM_INFINITY]


@attack(levels=ALL)
def queues_more_signals_than_a_run_needs(p: Parameters) -> object:
    """Timers and queued signals are counted for the user, who is the same in all runs."""
    hard = resource.getrlimit(11)[1]  # RLIMIT_SIGPENDING
    return [hard] if hard == resource.RLIM_INFINITY or hard > 4096 else []
