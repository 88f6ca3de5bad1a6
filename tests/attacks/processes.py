"""Many processes, and processes that do not want to end."""

import ctypes
import os
import signal
import threading
import time

from tests.attacks.attack import ALL, SANDBOXED, attack
from tests.attacks.evidence import got_something, outlived_its_run, stayed_too_long
from tests.attacks.kit import (
    Parameters,
    brand,
    call,
    forever,
    in_child,
)

_BOMB = ("PROCESS_LIMIT", "TOOL_ERROR", "EXITED")


@attack(levels=ALL, seen=(got_something,), ends=_BOMB)
def forks_more_than_it_may(p: Parameters) -> object:
    many = 2 * p["limits"]["processes"] + 20
    for _ in range(many):
        in_child(forever)
    return [many]


@attack(levels=ALL, seen=(got_something,), ends=_BOMB)
def starts_more_threads_than_it_may(p: Parameters) -> object:
    many = 2 * p["limits"]["processes"] + 20
    for _ in range(many):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return [many]


@attack(levels=ALL, seen=(got_something,), ends=_BOMB)
def forks_children_that_fork(p: Parameters) -> object:
    """The process that is refused reports for all."""
    first, (hears, says) = os.getpid(), os.pipe()
    for _ in range(6):
        os.fork()
    if os.getpid() != first:
        os.write(says, b"x")
        forever()
    return [os.read(hears, 1) for _ in range(p["limits"]["processes"] + 1)] != []


@attack(levels=ALL, seen=(got_something,), ends=_BOMB)
def leaves_zombies(p: Parameters) -> object:
    """Dead children that no process waits for are processes still."""
    many = 2 * p["limits"]["processes"] + 20
    for _ in range(many):
        in_child(lambda: None)
    return [many]


@attack(levels=ALL, seen=(got_something,), ends=_BOMB)
def makes_processes_past_libc(p: Parameters) -> object:
    many = 2 * p["limits"]["processes"] + 20
    for _ in range(many):
        if call("clone", signal.SIGCHLD, 0, 0, 0, 0) == 0:
            forever()
    return [many]


@attack(levels=ALL, seen=(got_something,), ends=_BOMB)
def makes_processes_with_the_newer_call(p: Parameters) -> object:
    """clone3 keeps its flags in memory, where no filter can read them."""
    arguments = (ctypes.c_ulonglong * 11)(0, 0, 0, 0, signal.SIGCHLD)
    many = 2 * p["limits"]["processes"] + 20
    for _ in range(many):
        if call("clone3", arguments, 88) == 0:
            forever()
    return [many]


@attack(levels=ALL, seen=(outlived_its_run,))
def leaves_a_child_behind(p: Parameters) -> object:
    brand(p)
    in_child(forever)
    return []


@attack(levels=ALL, seen=(outlived_its_run,))
def leaves_a_daemon_behind(p: Parameters) -> object:
    """Twice forked, in a session of its own, standing elsewhere, with nothing open."""
    brand(p)

    def daemon() -> None:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            os.closerange(0, 64)
            forever()

    os.waitpid(in_child(daemon), 0)
    return []


@attack(levels=ALL, seen=(outlived_its_run,))
def leaves_a_child_that_ignores_all_signals(p: Parameters) -> object:
    brand(p)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if os.fork() == 0:
        os.setpgid(0, 0)
        forever()
    return []


@attack(levels=ALL, seen=(outlived_its_run,))
def leaves_a_child_that_is_stopped(p: Parameters) -> object:
    brand(p)
    in_child(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    return []


@attack(levels=ALL, seen=(outlived_its_run,))
def flees_from_its_end_by_forking_on_and_on(p: Parameters) -> object:
    """Each one is dead before anybody could have seen its number."""
    brand(p)

    def comet() -> None:
        until = time.monotonic() + p["flees_s"]
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)

    in_child(comet)
    return []


@attack(
    levels=ALL,
    seen=(outlived_its_run,),
    ends=("EXITED", "TIMEOUT", "TOOL_ERROR"),
    wall_s=0.5,
)
def leaves_a_child_that_holds_every_descriptor_open(p: Parameters) -> object:
    brand(p)
    for number in range(3):
        os.set_inheritable(number, True)
    in_child(lambda: (os.dup2(1, 200), forever()))
    os._exit(0)


@attack(levels=ALL, seen=(outlived_its_run,))
def leaves_a_child_in_a_session_per_process(p: Parameters) -> object:
    """Each step of the way leaves its session and its group."""
    brand(p)

    def away(depth: int) -> None:
        os.setsid()
        if depth:
            in_child(lambda: away(depth - 1))
        forever()

    in_child(lambda: away(3))
    return []


@attack(levels=SANDBOXED, seen=(outlived_its_run,))
def makes_a_sibling_instead_of_a_child(p: Parameters) -> object:
    """CLONE_PARENT: the new process belongs to who started this one."""
    brand(p)
    if call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        forever()
    return []


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT", "EXITED", "TOOL_ERROR"), wall_s=0.3)
def lets_its_first_thread_end_alone(p: Parameters) -> object:
    """The process looks dead from outside, and its other thread goes on."""
    threading.Thread(target=forever).start()
    return call("exit", 0)


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT", "TOOL_ERROR"), wall_s=0.3)
def hangs_until_its_child_has_gone(p: Parameters) -> object:
    """The parent of a vfork hears no signal but the last."""
    if call("clone", 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        forever()
    return []


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT",), wall_s=0.2)
def sleeps_longer_than_it_may(p: Parameters) -> object:
    time.sleep(60)  # lint: inside the sandbox
    return []


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT",), wall_s=0.2)
def sleeps_deaf_to_all_signals(p: Parameters) -> object:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(60)  # lint: inside the sandbox
    return []


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT", "TOOL_ERROR"), wall_s=0.2)
def stops_itself(p: Parameters) -> object:
    """Process 1 of a namespace cannot be stopped from within; a child of it can."""
    os.kill(os.getpid(), signal.SIGSTOP)
    forever()


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT",), wall_s=0.2)
def waits_for_itself(p: Parameters) -> object:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    return []


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT",), wall_s=0.2)
def waits_for_another_to_write(p: Parameters) -> object:
    return os.read(os.pipe()[0], 1).decode()


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT", "EXITED", "TOOL_ERROR"), wall_s=0.3)
def closes_its_streams_and_waits(p: Parameters) -> object:
    os.closerange(0, 3)
    forever()


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT", "TOOL_ERROR"), wall_s=0.3)
def says_a_little_now_and_then(p: Parameters) -> object:
    """A timeout that restarts at each sign of life never ends."""
    while True:
        os.write(1, b".")
        time.sleep(0.02)  # lint: inside the sandbox


@attack(levels=ALL, seen=(stayed_too_long,), ends=("TIMEOUT",), wall_s=0.3)
def begins_an_answer_and_never_ends_it(p: Parameters) -> object:
    os.write(3, (1000).to_bytes(4, "big") + b"R")
    while True:
        os.write(3, b" ")
        time.sleep(0.02)  # lint: inside the sandbox
