"""What an agent's loop costs beside its model and its tools.

    python -m tests.benchmarks.agents [--steps 20] [--rounds 5]

Starts a Toolcrib of its own in a new directory and removes it again, and a model on loopback that
answers at once; the tool reads one small file. A step is measured by its rows: `whole`, from one
question to the next; `model` and `tool`, those two executions from their acceptance to their end;
`gates`, what these two were asked before they had a row; `evidence`, what was written of them after
the moment that is their end, until it was committed; `loop`, what is left: the two turns of the run
between them. Once on the running product, where `loop` holds gates and evidence as well, since
other processes see to them; once performed in this process, where nothing is waited for.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPConnection
from json import dumps, loads
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import UUID

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402
from django.utils import timezone  # noqa: E402

from tests import crib, factories  # noqa: E402
from tests.stubs import llm  # noqa: E402
from tests.tools.execution.in_process_worker import work_off  # noqa: E402
from tests.tools.execution.workers import stopped  # noqa: E402
from tools.agents import agent_requests as agent_actions  # noqa: E402
from tools.agents.agent_requests import AgentRunRequest  # noqa: E402
from tools.definitions.callers import Caller  # noqa: E402
from tools.execution import admit  # noqa: E402
from tools.execution import answer as actions  # noqa: E402
from tools.execution import perform as pipeline  # noqa: E402
from tools.execution.call import (  # noqa: E402
    Admission,
    Call,
    Performance,
)
from tools.models import Agent, Execution  # noqa: E402
from tools.workflows import nested_calls  # noqa: E402

GROUPS = ["default", "read-only"]
PARTS = ("whole", "model", "tool", "gates", "evidence", "loop")
QUESTION = "What is in the note?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    data = Path(os.environ["TOOLCRIB_DATA"])
    with llm.serving() as model:
        model.answers_by(lambda question: _reply(question, options.steps))
        os.environ.update(LLM_BASE_URL=model.url, LLM_MODEL="small")
        settings.LLM_BASE_URL, settings.LLM_MODEL = model.url, "small"
        with crib.running(data) as running:
            _measure(running, options.steps, options.rounds)
            for connection in connections.all():
                connection.close()
                connection.close_pool()
    crib.remove(data)


def _reply(question: dict[str, Any], steps: int) -> Any:
    done = sum(message["role"] == "tool" for message in question["messages"])
    return llm.calls("read_file", '{"path": "note.txt"}') if done < steps else "A note."


class Watched:
    """Of each call, in this process: the milliseconds at the gates, from its admission to its row,
    and the moment at which its end was committed."""

    def __init__(self) -> None:
        self.gates: dict[UUID, float] = {}
        self.committed: dict[UUID, datetime] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        admit_call, accept, began = nested_calls.admit, admit.accept, [0.0]
        perform = pipeline._perform

        def admitted(caller: Caller, call: Call) -> Execution:
            began[0] = time.perf_counter()
            return admit_call(caller, call)

        def accepted(admission: Admission) -> Execution:
            self.gates[admission.call.id] = (time.perf_counter() - began[0]) * 1000
            return accept(admission)

        def performed(performance: Performance) -> bool:
            ended = perform(performance)
            self.committed[performance.execution.pk] = timezone.now()
            return ended

        with (
            patch.object(nested_calls, "admit", admitted),
            patch.object(admit, "accept", accepted),
            patch.object(pipeline, "_perform", performed),
        ):
            yield

    def evidence_ms(self, call: Execution) -> float:
        """0 where another process wrote it."""
        committed = self.committed.get(call.pk)
        return _ms(call.completed_at, committed) if committed else 0.0


WATCHED = Watched()


def _measure(running: crib.Crib, steps: int, rounds: int) -> None:
    place = factories.organization("agents")
    factories.install(place)
    factories.workspace_file(place, "note.txt", b"a note")
    agent = factories.agent(place, groups=GROUPS)
    wanted = {"question": QUESTION, "max_iterations": steps + 2, "max_tokens": 2_000_000}
    print(f"{rounds} runs of {steps} steps; load {os.getloadavg()[0]:.1f} at the beginning")
    print(f"{'':20}{'':8}" + "".join(f"{part:>12}" for part in PARTS))
    for name, ask in (("running product", _over_rest), ("in this process", _in_process)):
        ask(running, agent, wanted)  # so that everything is warm
        found = [one for _ in range(rounds) for one in _steps(ask(running, agent, wanted))]
        _print_times(name, found)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


def _over_rest(running: crib.Crib, agent: Agent, wanted: dict[str, Any]) -> str:
    token, where = factories.token(agent.service_account), urlsplit(running.url)
    client = HTTPConnection(where.hostname or "", where.port, timeout=600)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = wanted | {"group": GROUPS, "options": {"wait_s": 60}}
    client.request("POST", "/api/v1/agent/requests", dumps(body), headers)
    answer = loads(client.getresponse().read())
    if answer.get("status") != "Success":
        raise SystemExit(f"the run: {answer}")
    return str(answer["request_id"])


def _in_process(running: crib.Crib, agent: Agent, wanted: dict[str, Any]) -> str:
    with stopped(running):
        caller = factories.caller(agent)
        call = agent_actions.build_call(caller, AgentRunRequest(wanted, group=GROUPS))
        run = actions.execute(caller=caller, call=call, wait_s=0)
        with WATCHED.watching():
            work_off(agent.organization)
    return str(run.pk)


def _steps(run: str) -> Iterator[tuple[float, ...]]:
    """Of each step the milliseconds of `PARTS`."""
    rows = Execution.objects.filter(parent=run).only("place", "created_at", "completed_at")
    at = {row.place: row for row in rows}
    number = 1
    while (tool := at.get(f"act/{number}")) and (after := at.get(f"think/{number + 1}")):
        question = at[f"think/{number}"]
        whole = _ms(question.created_at, after.created_at)
        parts = [_ms(one.created_at, one.completed_at) for one in (question, tool)]
        # The call of this step, and the question that ends it.
        parts.append(sum(WATCHED.gates.get(one.pk, 0.0) for one in (tool, after)))
        parts.append(sum(map(WATCHED.evidence_ms, (question, tool))))
        yield (whole, *parts, whole - sum(parts))
        number += 1


def _ms(since: Any, until: Any) -> float:
    return float((until - since).total_seconds() * 1000)


def _print_times(name: str, found: list[tuple[float, ...]]) -> None:
    if not found:
        raise SystemExit(f"{name}: there was no step")
    columns = [*zip(*found, strict=True)]
    cuts = [statistics.quantiles(column, n=20) for column in columns]
    for label, at in (("median", 9), ("p95", 18)):
        row = "".join(f"{cut[at]:9.1f} ms" for cut in cuts)
        print(f"{name:20}{label:8}{row}")


if __name__ == "__main__":
    main()
