"""Does to a crib what may happen to one: kills, stops, floods, fills its disk, turns its clocks.

A schedule is drawn from a seed and names kinds, pauses and durations; what is met is found when it
is due, so the same seed hits other processes where the crib has come along differently.
"""

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from uuid import UUID, uuid4

import psycopg
import redis
from celery import Celery
from kombu.exceptions import OperationalError

from config.local import orphans
from tests.faults import history
from tests.faults.house import House
from tests.faults.service import Service

log = logging.getLogger(__name__)
RUN_EXECUTION = "tools.execution.tasks.run_execution"
WAKE_UPS = "toolcrib:wake-ups"
COPIES = 10
MOST_STOPPED_S = 20.0
PERFORMS_WITHIN_S = 30.0
_JUMPS_S = (3_600, -3_600, 86_400, -86_400, 20, -20)
_PIECES = (64 << 20, 1 << 20, 4 << 10)  # a piece that does not fit leaves none of itself
_FULL = 1 << 20  # with less room than this nothing of weight can be written


@dataclass(frozen=True)
class Fault:
    kind: str
    pause_s: float  # before it
    lasts_s: float


@dataclass(frozen=True)
class Struck:
    """A fault that happened. `pid` of what was killed or stopped."""

    kind: str
    at: float
    until: float
    pid: int = 0


@dataclass
class Nemesis:
    house: House
    chance: random.Random
    dispatcher: Celery
    service: Service
    struck: list[Struck] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    _ends: list[threading.Timer] = field(default_factory=list)
    _end_of: dict[str, threading.Timer] = field(default_factory=dict)

    def strike(self, fault: Fault) -> None:
        """Begin it; what lasts ends by itself. A fault that finds nothing to hit is `missed`."""
        kind = KINDS[fault.kind]
        if kind.before is not None:
            with suppress(psycopg.Error):
                kind.before(self)
        at = time.time()
        try:
            pid = kind.strike(self, fault)
        except (OSError, psycopg.Error, redis.RedisError, OperationalError) as error:
            log.info("%s: %s", fault.kind, error)
            pid = None
        if pid is None:
            self.missed.append(fault.kind)
        else:
            self.struck.append(Struck(fault.kind, at, time.time() + fault.lasts_s, pid))

    def later(self, seconds: float, undo: Callable[[], object], *, what: str = "") -> None:
        """`what` can be in one plight at a time: a new one ends when it does, not when the former
        would have."""
        timer = threading.Timer(seconds, undo)
        timer.daemon = True
        if what:
            if former := self._end_of.get(what):
                former.cancel()
            self._end_of[what] = timer
        self._ends.append(timer)
        timer.start()

    def calm(self) -> float:
        """When everything that lasts has ended."""
        for timer in self._ends:
            timer.join()
        return time.time()


def schedule(seed: int, kinds: list[str], pause_s: float) -> Iterator[Fault]:
    """Without an end; the same for the same arguments. First each kind once, then by weight."""
    chance = random.Random(seed)
    weights = [KINDS[kind].weight for kind in kinds]
    drawn = (chance.choices(kinds, weights)[0] for _ in count())
    for kind in chain(chance.sample(kinds, len(kinds)), drawn):
        least, most = KINDS[kind].lasts_s
        yield Fault(
            kind, chance.uniform(0.2, 2 * pause_s - 0.2), least and chance.uniform(least, most)
        )


def impossible(house: House) -> dict[str, str]:
    """Kinds of faults that cannot be done to this crib on this machine, and why."""
    lacking = {} if house.disk else {"disk full": "no file system could be mounted"}
    return lacking | ({} if house.clock else {"clock jump": "there is no C compiler"})


# --- processes ----------------------------------------------------------------------------------
def _kill(role: str) -> "Strike":
    def strike(nemesis: Nemesis, fault: Fault) -> int | None:
        victim = _victim(nemesis, role)
        if victim:
            os.kill(victim.pid, signal.SIGKILL)
        return victim and victim.pid

    return strike


def _stop_performing_web(nemesis: Nemesis) -> None:
    """Stop web while it performs a call, so that the call does not end before the kill; not where
    none comes in time."""
    deadline = time.monotonic() + PERFORMS_WITHIN_S
    with nemesis.house.database() as database:
        while time.monotonic() < deadline:
            for web in nemesis.house.leaders("web"):
                _signal(web, signal.SIGSTOP)
                if history.performed_by(database, web.pid):
                    return
                _signal(web, signal.SIGCONT)
            time.sleep(0.1)


def _stop(role: str) -> "Strike":
    def strike(nemesis: Nemesis, fault: Fault) -> int | None:
        victim = _victim(nemesis, role)
        if not victim:
            return None
        os.kill(victim.pid, signal.SIGSTOP)
        nemesis.later(fault.lasts_s, lambda: _signal(victim, signal.SIGCONT))
        return victim.pid

    return strike


def _victim(nemesis: Nemesis, role: str) -> orphans.Process | None:
    found = nemesis.house.runs() if role == "run" else nemesis.house.members(role)
    return nemesis.chance.choice(found) if found else None


def _signal(process: orphans.Process, number: signal.Signals) -> None:
    """Unless the number has meanwhile gone to another process."""
    now = orphans.read_process(process.pid)
    if now and now.started == process.started:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


# --- Redis --------------------------------------------------------------------------------------
def _flush(nemesis: Nemesis, fault: Fault) -> int | None:
    with nemesis.house.broker() as broker:
        broker.flushall()
    return 0


def _cut_clients(nemesis: Nemesis, fault: Fault) -> int | None:
    with nemesis.house.broker() as broker:
        broker.client_kill_filter(_type="normal", skipme=True)
        broker.client_kill_filter(_type="pubsub", skipme=True)
    return 0


def _wipe(nemesis: Nemesis, fault: Fault) -> int | None:
    """Killed, and what it had written is gone when it comes back."""
    victim = _victim(nemesis, "valkey")
    if victim:
        os.kill(victim.pid, signal.SIGSTOP)  # the supervisor must not be faster
        for file in (nemesis.house.data / "valkey").rglob("*"):
            if file.is_file():
                file.unlink(missing_ok=True)
        os.kill(victim.pid, signal.SIGKILL)
    return victim and victim.pid


# --- PostgreSQL ---------------------------------------------------------------------------------
_OTHERS = "pg_stat_activity WHERE usename = 'toolcrib' AND pid <> pg_backend_pid()"


def _postmaster(number: signal.Signals) -> "Strike":
    def strike(nemesis: Nemesis, fault: Fault) -> int | None:
        for leader in nemesis.house.leaders("postgres"):
            os.kill(leader.pid, number)
            return leader.pid
        return None

    return strike


def _hang_database(nemesis: Nemesis, fault: Fault) -> int | None:
    """The server first, so that it makes no more of those that are stopped after it."""
    for leader in nemesis.house.leaders("postgres"):
        _signal(leader, signal.SIGSTOP)
        hung = [leader, *nemesis.house.descendants("postgres")]
        for process in hung:
            _signal(process, signal.SIGSTOP)
            nemesis.later(fault.lasts_s, partial(_signal, process, signal.SIGCONT))
        return leader.pid
    return None


def _backend(nemesis: Nemesis, fault: Fault) -> int | None:
    """One server process dies; PostgreSQL then ends all sessions and recovers."""
    pids = _backends(nemesis)
    if not pids:
        return None
    pid = nemesis.chance.choice(pids)
    os.kill(pid, signal.SIGKILL)
    return pid


def _terminate(nemesis: Nemesis, fault: Fault) -> int | None:
    with nemesis.house.database() as database:
        database.execute(f"SELECT pg_terminate_backend(pid) FROM {_OTHERS}")
    return 0


def _backends(nemesis: Nemesis) -> list[int]:
    with nemesis.house.database() as database:
        return [row[0] for row in database.execute(f"SELECT pid FROM {_OTHERS} ORDER BY pid")]


# --- the weather --------------------------------------------------------------------------------
def _fill_disk(nemesis: Nemesis, fault: Fault) -> int | None:
    """Nothing was hit where others found room again before all of it was taken."""
    filler = nemesis.house.data / "filler"
    nemesis.later(fault.lasts_s, lambda: filler.unlink(missing_ok=True), what="disk")
    with filler.open("ab") as out:
        for piece in _PIECES:
            _take(out.fileno(), piece)
    room = os.statvfs(nemesis.house.data)
    return 0 if room.f_bavail * room.f_frsize < _FULL else None


def _take(file: int, piece: int) -> None:
    """Makes the file longer by pieces until none finds room."""
    with suppress(OSError):
        while True:
            os.posix_fallocate(file, os.fstat(file).st_size, piece)


def _turn_clock(nemesis: Nemesis, fault: Fault) -> int | None:
    clock = nemesis.house.clock
    if clock is None:
        return None
    nemesis.later(fault.lasts_s, lambda: clock.set_offset(0), what="clock")
    clock.set_offset(nemesis.chance.choice(_JUMPS_S))
    return 0


def _repeat_dispatches(nemesis: Nemesis, fault: Fault) -> int | None:
    """Every dispatch of the last calls again, ten times and in no order; some of nothing at all. As
    wake-ups and as messages."""
    with nemesis.house.database() as database:
        rows = database.execute("SELECT id FROM tools_execution ORDER BY created_at DESC LIMIT 20")
        ids: list[UUID] = [row[0] for row in rows] + [uuid4(), uuid4()]
    messages = ids * COPIES
    nemesis.chance.shuffle(messages)
    with nemesis.house.broker() as broker:
        broker.rpush(WAKE_UPS, *map(str, messages))
    for execution_id in messages:
        nemesis.dispatcher.send_task(
            RUN_EXECUTION, (str(execution_id),), ignore_result=True, retry=False
        )
    return 0


# --- what tools call ----------------------------------------------------------------------------
def _kill_service(nemesis: Nemesis, fault: Fault) -> int | None:
    """It is there again under the same address when the fault is over."""
    service = nemesis.service
    if not service.alive:
        return None
    nemesis.later(fault.lasts_s, service.start, what="service")
    service.kill()
    return 0


def _stop_service(nemesis: Nemesis, fault: Fault) -> int | None:
    service = nemesis.service
    if not service.alive:
        return None
    nemesis.later(fault.lasts_s, partial(service.signal, signal.SIGCONT), what="service")
    service.signal(signal.SIGSTOP)
    return 0


Strike = Callable[[Nemesis, Fault], int | None]


@dataclass(frozen=True)
class Kind:
    """`weight` is how often it is drawn beside others; `lasts_s` between what it lasts; `before`
    waits for the moment to strike."""

    strike: Strike
    weight: float = 1
    lasts_s: tuple[float, float] = (0, 0)
    before: Callable[[Nemesis], None] | None = None


_STOPPED = (0.5, MOST_STOPPED_S)
KINDS: dict[str, Kind] = {
    "kill web": Kind(_kill("web"), 3, before=_stop_performing_web),
    "kill worker": Kind(_kill("worker"), 6),
    "kill housekeeper": Kind(_kill("housekeeper"), 2),
    "kill beat": Kind(_kill("beat"), 2),
    "kill sealer": Kind(_kill("sealer"), 2),
    "kill sandboxd": Kind(_kill("sandboxd"), 3),
    "kill egress": Kind(_kill("egress"), 1),
    "kill run": Kind(_kill("run"), 3),
    "stop web": Kind(_stop("web"), 0.5, (0.5, 8)),
    "stop worker": Kind(_stop("worker"), 2, _STOPPED),
    "stop housekeeper": Kind(_stop("housekeeper"), 1, _STOPPED),
    "stop beat": Kind(_stop("beat"), 0.5, _STOPPED),
    "stop sealer": Kind(_stop("sealer"), 0.5, _STOPPED),
    "stop sandboxd": Kind(_stop("sandboxd"), 1, _STOPPED),
    "stop run": Kind(_stop("run"), 1, _STOPPED),
    "redis killed": Kind(_kill("valkey"), 1),
    "redis wiped": Kind(_wipe, 1),
    "redis flushed": Kind(_flush, 1),
    "redis hung": Kind(_stop("valkey"), 1, (1, 10)),
    "redis clients cut": Kind(_cut_clients, 1),
    "postgres killed": Kind(_postmaster(signal.SIGKILL), 1),
    "postgres quit": Kind(_postmaster(signal.SIGQUIT), 0.5),
    "postgres backend killed": Kind(_backend, 0.5),
    "postgres hung": Kind(_hang_database, 1, (1, 14)),
    "postgres sessions ended": Kind(_terminate, 1),
    "disk full": Kind(_fill_disk, 0.5, (1, 5)),
    "clock jump": Kind(_turn_clock, 1, (2, 10)),
    "hints repeated": Kind(_repeat_dispatches, 2),
    "kill service": Kind(_kill_service, 1, (0.2, 3)),
    "stop service": Kind(_stop_service, 1, (0.5, 25)),
}
KILLS = frozenset(
    kind for kind in KINDS if kind.startswith("kill ") or kind.endswith(" killed")
) | {"redis wiped", "postgres quit"}
WIPES = frozenset({"redis wiped", "redis flushed"})
AWAY = WIPES | {"redis killed", "redis hung"}  # what waits then is found without a dispatch
DATABASE_DEATHS = frozenset({"postgres killed", "postgres quit", "postgres backend killed"})
