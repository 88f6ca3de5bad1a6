"""Calls and faults at the same time, and what had to be true of them afterwards.

    python -m tests.faults.soak [--seed N] [--faults F] [--kills K] [--calls C] [--seconds S]

Ends when there were as many faults, kills and calls as asked for, or after the time that is given;
status 1 where anything was violated, or too little happened. The crib is one of its own, in a
directory of its own that goes away when nothing was found.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from celery import Celery

from tests.faults import history, ledger, measures
from tests.faults.checker import History, Violation, violations
from tests.faults.clients import FOLLOWED_S, Client, Seen
from tests.faults.house import DISK_BYTES, ELSEWHERE, House, is_ready, running_house
from tests.faults.nemesis import (
    DATABASE_DEATHS,
    KILLS,
    KINDS,
    Fault,
    Nemesis,
    impossible,
    schedule,
)
from tests.faults.service import Service, serving
from tests.journeys.client import Http

BACK_WITHIN_S = 60
READY_WITHIN_S = 30
MOST_SHOWN = 40
CALLS_BETWEEN = 8
MOST_BETWEEN_S = 12
BEGAN = time.monotonic()


@dataclass
class Soak:
    """One run: the clients and the nemesis at work on one crib."""

    given: argparse.Namespace
    house: House
    book: ledger.Ledger
    service: Service
    seen: Seen = field(default_factory=Seen)
    stop: threading.Event = field(default_factory=threading.Event)
    found: list[Violation] = field(default_factory=list)
    reached: int = 0  # calls that were acknowledged before the last fault
    deaths: list[tuple[float, float]] = field(default_factory=list)  # of PostgreSQL; and back
    history: History = field(default_factory=History)
    finished_after_s: float = float("nan")

    def __post_init__(self) -> None:
        dispatcher = Celery("faults", set_as_current=False)
        dispatcher.config_from_object("django.conf:settings", namespace="CELERY")
        chance = random.Random(self.given.seed)
        self.nemesis = Nemesis(self.house, chance, dispatcher, self.service)
        threading.excepthook = self._thread_died

    def run(self) -> None:
        clients = list(self._clients(self._prepare()))
        for client in clients:
            client.start()
        self._storm()
        self.finished_after_s = self._settle()
        for client in clients:
            client.join(FOLLOWED_S + 60)
        self._check_clients(clients)
        self._check_evidence()
        self._check_history()

    def _prepare(self) -> dict[str, str]:
        """The agents' tokens."""
        command = f"from tests.faults import scene; scene.print_scene({self.service.port})"
        done = self.house.manage("shell", "--no-imports", "-c", command)
        if done.returncode:
            raise RuntimeError(done.stderr)
        with self.house.database() as database:
            history.watch(database)
        return json.loads(done.stdout.splitlines()[-1])

    def _clients(self, tokens: dict[str, str]) -> Iterator[Client]:
        for number in range(self.given.clients):
            token = list(tokens.values())[number % len(tokens)]
            yield Client(
                http=Http(self.house.url, token),
                ledger=self.service.url,
                seed=self.given.seed * 1000 + number,
                seen=self.seen,
                stop=self.stop,
            )

    def _storm(self) -> None:
        lacking = impossible(self.house)
        for kind, why in lacking.items():
            say(f"NOTHING SHOWS WHAT COMES OF {kind.upper()}: {why}")
        kinds = [kind for kind in self.given.kinds if kind not in lacking]
        for fault in schedule(self.given.seed, kinds, self.given.pause):
            time.sleep(fault.pause_s)
            self._await_calls()
            late = self.given.seconds and time.monotonic() - BEGAN > self.given.seconds
            if late or self._has_enough() or self._has_fallen():
                return
            self._strike(fault)

    def _await_calls(self) -> None:
        """Some go through between two faults, unless the last one keeps them from it for long:
        what is killed before it has begun to work again shows little."""
        deadline = time.monotonic() + MOST_BETWEEN_S
        wanted = self.reached + CALLS_BETWEEN
        while len(self.seen.acknowledged) < wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        self.reached = len(self.seen.acknowledged)

    def _has_enough(self) -> bool:
        struck = self.nemesis.struck
        kills = sum(one.kind in KILLS for one in struck)
        counts = (len(struck), kills, self.reached)
        wanted = (self.given.faults, self.given.kills, self.given.calls)
        return all(count >= least for count, least in zip(counts, wanted, strict=True))

    def _strike(self, fault: Fault) -> None:
        before = len(self.nemesis.struck)
        self.nemesis.strike(fault)
        new = self.nemesis.struck[before:]
        say(f"{fault.kind}{'' if new else ' (nothing to hit)'}")
        for one in new:
            if one.kind in DATABASE_DEATHS:
                self._await_database(one.at)

    def _await_database(self, killed_at: float) -> None:
        """Notes when it serves again; how long a call then takes is measured."""
        deadline = time.monotonic() + BACK_WITHIN_S
        while time.monotonic() < deadline:
            try:
                with self.house.database() as database:
                    database.execute("SELECT 1")
                    self.deaths.append((killed_at, time.time()))
                    return
            except psycopg.Error:
                time.sleep(0.05)
        self._violated("service", f"PostgreSQL was not back within {BACK_WITHIN_S} s")

    def _has_fallen(self) -> bool:
        if self.house.supervisor.poll() is None:
            return False
        self._violated("service", f"`up` ended with status {self.house.supervisor.returncode}")
        return True

    def _settle(self) -> float:
        """Seconds from the last fault until nothing is unfinished."""
        calm_at = self.nemesis.calm()
        self.stop.set()
        say("calm")
        while time.time() < calm_at + self.given.within:
            if self._unfinished() == 0:
                break
            time.sleep(0.2)
        else:
            left = self._unfinished()
            self._violated("unfinished", f"{left} after {self.given.within:.0f} s of calm")
        return time.time() - calm_at

    def _unfinished(self) -> int | None:
        try:
            with self.house.database() as database:
                return history.unfinished(database)
        except psycopg.Error:
            return None

    def _check_clients(self, clients: list[Client]) -> None:
        for key in self.seen.unanswered:
            self._violated("service", f"{key} was not answered in {FOLLOWED_S:.0f} s of calm")
        for client in clients:
            if client.is_alive():
                self._violated("service", f"{client.name} still waits")
        for answer in self.seen.odd:
            self._violated("answers", answer)
        if not self._gets_ready():
            self._violated("service", f"not ready within {READY_WITHIN_S} s after the calm")

    def _gets_ready(self) -> bool:
        deadline = time.monotonic() + READY_WITHIN_S
        while not (ready := is_ready(self.house)) and time.monotonic() < deadline:
            time.sleep(0.5)
        return ready

    def _check_evidence(self) -> None:
        verified = self.house.manage("audit_verify", timeout_s=600)
        if verified.returncode:
            self._violated("evidence", f"{verified.stdout} {verified.stderr}"[-2000:])

    def _check_history(self) -> None:
        try:
            with self.house.database() as database:
                calls = tuple(self.seen.acknowledged.values())
                self.history = history.read(database, self.book.effects(), calls)
        except psycopg.Error as error:
            self._violated("service", f"the history cannot be read: {error}")
            return
        self.found += violations(self.history)
        self.found += measures.too_little(self.history, len(self.nemesis.struck), self.given.least)
        self.found += measures.idle_kills(self.history, self.nemesis.struck)
        if self.given.targets:
            self.found += measures.missed_targets(self._recovered_s())

    def _thread_died(self, death: threading.ExceptHookArgs) -> None:
        """A client, or what ends a fault: without it the run says less than it seems to."""
        trace = traceback.format_exception(death.exc_type, death.exc_value, death.exc_traceback)
        name = death.thread.name if death.thread else "a thread"
        self._violated("service", f"{name} died: {''.join(trace)}")

    def _violated(self, kind: str, said: str) -> None:
        self.found.append(Violation(kind, "", said))

    def _recovered_s(self) -> dict[str, list[float]]:
        struck = self.nemesis.struck
        return {
            measures.ORPHANS: measures.orphans_s(self.history, struck),
            measures.AWAITED: measures.while_away_s(self.history, struck),
            "PostgreSQL back": [back - killed for killed, back in self.deaths],
            measures.SUCCEEDED: measures.after_deaths_s(self.seen.successes, self.deaths),
        }

    def table(self) -> str:
        return "\n".join(
            measures.table(
                history=self.history,
                struck=self.nemesis.struck,
                missed=self.nemesis.missed,
                answers=self.seen.answers,
                found=self.found,
                recovered_s=self._recovered_s(),
                finished_after_s=self.finished_after_s,
            )
        )


def main() -> None:
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    place = Path(tempfile.mkdtemp(prefix="faults-", dir=options.place))
    place.chmod(0o711)
    for name in ELSEWHERE & os.environ.keys():
        del os.environ[name]
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    os.environ["TOOLCRIB_DATA"] = str(place / "data")
    say(f"seed {options.seed}, {place}")
    with (
        ledger.run_ledger(place / "effects") as book,
        serving(book.url) as service,
        running_house(place, options.disk_mib << 20, migrated=options.migrated) as house,
    ):
        soak = Soak(options, house, book, service)
        try:
            soak.run()
        finally:
            _report(soak, place)
    if soak.found:
        sys.exit(1)
    shutil.rmtree(place)


def _report(soak: Soak, place: Path) -> None:
    """Whatever became of the run: the worst of them is the one that could not go on."""
    with suppress(OSError):
        shutil.copytree(soak.house.data / "log", place / "log")
    print(soak.table())
    for violation in soak.found[:MOST_SHOWN]:
        print(violation)
    if soak.found:
        print(f"{len(soak.found)} violations; seed {soak.given.seed}; logs in {place}")
    sys.stdout.flush()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--seconds", type=float, default=0, help="then no more faults, from the start; 0: no bound"
    )
    parser.add_argument("--least", type=int, default=1, help="faults and calls there must be")
    parser.add_argument("--targets", action="store_true", help="one that is missed is a violation")
    parser.add_argument("--migrated", action="store_true", help="not from an empty directory")
    parser.add_argument("--within", type=float, default=30, help="seconds of calm to finish in")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--pause", type=float, default=2, help="seconds between faults, on average")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND")
    parser.add_argument("--disk-mib", type=int, default=DISK_BYTES >> 20, help="in memory")
    parser.add_argument("--place", help="where the directory of the run is made")
    return parser.parse_args()


if __name__ == "__main__":
    main()
