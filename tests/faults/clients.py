"""Agents that call tools as good clients do: same key and same body until they are answered."""

import http.client
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.faults.checker import Acknowledged
from tests.journeys.client import Answer, Http
from tools.definitions.results import FINAL

DELIVERIES = ("pure", "idempotent", "external")
PATIENCE_S = 2.0
FOLLOWED_S = 60.0  # after the end of a run, an acknowledged call is asked after for so long
GOING_OUT = 0.5  # share of the calls that only go out, which the web process may perform
WAITED_FOR = {"wait_s": 30, "timeout": "PT25S"}  # to their end: the web process performs them
LONG_RUNS = 0.05  # they outlive what keeps runs in order: the fence, the lease
_AGAIN = frozenset({409, 429, 503})  # 409: a session whose last call is not over


@dataclass
class Seen:
    """What all clients have seen together."""

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    successes: list[float] = field(default_factory=list)  # when one was answered
    unanswered: list[str] = field(default_factory=list)
    begun: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, answer: Answer) -> None:
        with self.lock:
            self.answers[str(answer.status_code)] += 1
            if answer.status_code >= 400 and answer.status_code not in _AGAIN:
                self.odd.append(f"{answer.status_code} {answer.content[:200]!r}")

    def note(self, call: Acknowledged) -> None:
        with self.lock:
            if call.key not in self.acknowledged and call.status == "Success":
                self.successes.append(time.time())
            self.acknowledged[call.key] = call

    def next_number(self) -> int:
        with self.lock:
            self.begun += 1
            return self.begun


class Client(threading.Thread):
    """One call after the other until `stop`; then it follows its last one to the end."""

    def __init__(
        self, *, http: Http, ledger: str, seed: int, seen: Seen, stop: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._http, self._ledger, self._seen, self._stop_requested = http, ledger, seen, stop
        self._chance = random.Random(seed)
        self._session: str | None = None
        self._wants_session = seed % 4 == 0
        self._long = False  # whether the present call runs longer than a lease
        self._gives_up_at = float("inf")

    def run(self) -> None:
        while not self._stop_requested.is_set():
            if self._wants_session and self._session is None:
                self._open_session()
            self._call()

    def _open_session(self) -> None:
        answer = self._ask("POST", "/api/v1/sessions", {"group": ["default"]})
        if answer and answer.status_code == 201:
            self._session = answer.json()["id"]

    def _call(self) -> None:
        key = f"call-{self._seen.next_number()}"
        answer = self._answered(key, self._body(key))
        if answer is None:
            self._seen.unanswered.append(key)
            return
        if "execution_id" not in answer:
            return
        self._note(key, answer)
        if self._chance.random() < 0.04:
            self._cancel(answer)
        self._follow(key, answer)

    def _body(self, key: str) -> tuple[str, dict[str, Any]]:
        slow = self._chance.random() < 0.3
        self._long = self._chance.random() < LONG_RUNS
        before_s = self._chance.uniform(12, 22) if self._long else self._chance.uniform(0.5, 4)
        parameters = {
            "key": key,
            "before_s": round(before_s, 2) if slow or self._long else 0,
            "after_s": round(self._chance.uniform(0, 2), 2) if slow else 0,
        }
        options: dict[str, Any] = {"wait_s": self._chance.choice([0, 1, 5, 30])}
        tool = "tell"
        if self._chance.random() < GOING_OUT:
            tool, options = "send", self._chance.choice([options, WAITED_FOR, WAITED_FOR])
        else:
            parameters["ledger"] = self._ledger
        body = {"parameters": parameters, "options": options, "session": self._session}
        return f"/api/v1/tools/{tool}_{self._chance.choice(DELIVERIES)}/execute", body

    def _answered(self, key: str, call: tuple[str, dict[str, Any]]) -> dict[str, Any] | None:
        """The answer that is neither a lost connection nor a request to come again."""
        while not self._has_given_up():
            answer = self._ask("POST", *call, **{"Idempotency-Key": key})
            if answer is None or answer.status_code >= 500:
                self._pause(0.2)
            elif answer.status_code in _AGAIN:
                self._pause(float(answer.headers.get("Retry-After") or 0.2))
            else:
                return answer.json()
        return None

    def _follow(self, key: str, answer: dict[str, Any]) -> None:
        place = f"/api/v1/executions/{answer['execution_id']}?wait_s=5"
        while answer["status"] not in FINAL and not self._has_given_up():
            if self._long and self._stop_requested.is_set():  # what is left is to be over soon
                self._long = not self._cancel(answer)
            found = self._ask("GET", place, None)
            if found is None or found.status_code not in (200, 202):
                self._pause(0.2)
                continue
            answer = found.json()
            self._note(key, answer)

    def _cancel(self, answer: dict[str, Any]) -> bool:
        """Whether an answer came."""
        place = f"/api/v1/executions/{answer['execution_id']}/cancel"
        found = self._ask("POST", place, None)
        return found is not None and found.status_code < 500

    def _note(self, key: str, answer: dict[str, Any]) -> None:
        self._seen.note(Acknowledged(key, answer["execution_id"], answer["status"]))

    def _ask(self, method: str, path: str, body: Any, **headers: str) -> Answer | None:
        """None where the connection was lost."""
        try:
            answer = self._http(method, path, body, **headers)
        except (OSError, http.client.HTTPException):
            with self._seen.lock:
                self._seen.answers["lost"] += 1
            return None
        self._seen.count(answer)
        return answer

    def _has_given_up(self) -> bool:
        if self._stop_requested.is_set() and self._gives_up_at == float("inf"):
            self._gives_up_at = time.monotonic() + FOLLOWED_S
        return time.monotonic() > self._gives_up_at

    def _pause(self, seconds: float) -> None:
        time.sleep(min(seconds, PATIENCE_S) * self._chance.uniform(0.5, 1))
