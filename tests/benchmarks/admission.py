"""What governing a call costs before anything runs: 10,000 tools, 200 groups, 1,000 grants.

    python -m tests.benchmarks.admission [--rounds 1000]

Starts a Toolcrib of its own in a new directory and removes it again; its worker is not used, for
the accepted calls are cancelled before anybody looks for them. Prints one table in milliseconds.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.contrib.auth.models import Permission  # noqa: E402
from django.db.models.functions import Now  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.accounts.grants.grants import EXECUTE  # noqa: E402
from tools.accounts.token_authentication import caller_of_token  # noqa: E402
from tools.authorization.listings import usable_tools  # noqa: E402
from tools.catalog.registry import registry  # noqa: E402
from tools.definitions.callers import Caller  # noqa: E402
from tools.definitions.results import Status  # noqa: E402
from tools.definitions.tool import definition_digest, read_definition  # noqa: E402
from tools.execution.accept import accept  # noqa: E402
from tools.execution.admit import (  # noqa: E402
    ADMISSION,
    admit,
)
from tools.execution.call import Admission, Call  # noqa: E402
from tools.limits.rate_limits import WINDOW_S  # noqa: E402
from tools.models import (  # noqa: E402
    Agent,
    Execution,
    Organization,
    Tool,
    ToolGroup,
    ToolUserObjectPermission,
    ToolVersion,
)
from tools.policy.questions import EffectiveRequest  # noqa: E402

TOOLS, GROUPS, GRANTS = 10_000, 200, 1_000
TARGET_MS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    rounds = parser.parse_args().rounds
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data):
        organization, token = _fill()
        heads = ("p50 ms", "p95 ms", "p99 ms", "own CPU")  # of a busy machine, the last one counts
        print(f"{'':<54}{''.join(f'{head:>10}' for head in heads)}   target p95")
        _measure_all(organization, token, rounds)
    crib.remove(data)


def _measure_all(organization: Organization, token: str, rounds: int) -> None:
    caller = caller_of_token(token)
    snapshot = registry.snapshot(organization.pk, caller.revision)
    mine = [f"tool-{at}" for at in range(0, GRANTS, 2)]
    limited = [f"tool-{at}" for at in range(1, GRANTS, 2)]
    _gates(_call(mine[0]), caller)  # what a process does once is not what a call costs
    _gates(_call(limited[0]), caller)
    trusted_at = time.monotonic() + WINDOW_S + 1  # until then PostgreSQL counts beside Redis
    _show("token to caller", lambda at: caller_of_token(token), rounds)
    _show("ADMISSION, no limit a minute", lambda at: _gates(_call(mine[at % 500]), caller), rounds)
    admissions = [_gates(_call(mine[at % 500]), caller) for at in range(rounds)]
    _show("ACCEPTANCE and the row, committed", lambda at: accept(admissions[at]), rounds)
    _cancel(organization)
    _show("all of it, no limit", lambda at: admit(caller, _call(mine[at % 500])), rounds)
    _cancel(organization)
    _show(
        "listing, a set of groups nobody has asked for before",
        lambda at: usable_tools(
            caller, EffectiveRequest.from_options(_groups(at, 3), f"s{at}"), snapshot
        ),
        max(rounds // 20, 20),
        target=None,
    )

    time.sleep(max(0.0, trusted_at - time.monotonic()))
    _show(
        "ADMISSION, limit a minute (Redis)",
        lambda at: _gates(_call(limited[at % 500]), caller),
        rounds,
    )
    _show("all of it, limit a minute", lambda at: admit(caller, _call(limited[at % 500])), rounds)
    _cancel(organization)


def _show(
    what: str, work: Callable[[int], object], rounds: int, target: float | None = TARGET_MS
) -> None:
    times, spent = [], time.process_time()
    for at in range(rounds):
        began = time.perf_counter()
        work(at)
        times.append((time.perf_counter() - began) * 1000)
    cuts = statistics.quantiles(times, n=100)
    figures = "".join(f"{cuts[at]:>10.3f}" for at in (49, 94, 98))
    processor = (time.process_time() - spent) * 1000 / rounds
    print(f"{what:<54}{figures}{processor:>10.3f}   {'' if target is None else target}", flush=True)


def _gates(call: Call, caller: Caller) -> Admission:
    admission = Admission(caller, call)
    for step in ADMISSION:
        step(admission)
    return admission


def _call(tool: str) -> Call:
    at = int(tool.removeprefix("tool-"))
    return Call(tool, {"text": "x"}, group=_groups(at, 3))


def _groups(at: int, count: int) -> list[str]:
    return [f"group-{(at + step) % (GROUPS // 2)}" for step in range(count)]


def _cancel(organization: Organization) -> None:
    """No worker is to run them."""
    waiting = Execution.objects.filter(organization=organization, status=Status.PENDING)
    waiting.update(status=Status.CANCELLED, completed_at=Now())


def _fill() -> tuple[Organization, str]:
    """The organization, and the token of an agent that holds half of the groups and 1,000 tools."""
    organization = factories.organization("benchmark")
    ToolGroup.objects.bulk_create(
        [ToolGroup(organization=organization, name=f"group-{at}") for at in range(GROUPS)],
        ignore_conflicts=True,
    )
    tools = _tools(organization)
    groups = [f"group-{at}" for at in range(GROUPS // 2)]
    agent = factories.agent(organization, "benchmark", groups=groups, tools=[])
    _grant(agent, tools[:GRANTS])
    Organization.objects.next_revision(organization.pk)
    return organization, factories.token(agent.service_account)


def _tools(organization: Organization) -> list[Tool]:
    """Written as rows: registering ten thousand one by one would take minutes."""
    plain = read_definition(factories.definition())
    tools, versions = [], []
    for at in range(TOOLS):
        limit = 1_000_000 if at % 2 else None
        name, group = f"tool-{at}", [f"group-{at % (GROUPS // 2)}", f"group-{GROUPS - 1}"]
        definition = plain | {"name": name, "group": group, "rate_limit_per_minute": limit}
        tool = Tool(organization=organization, name=name, type="code", revision=1)
        tools.append(tool)
        versions.append(
            ToolVersion(
                tool=tool,
                number=1,
                label="1.0.0",
                definition=definition,
                digest=definition_digest(definition),
                key_id="benchmark",
                signature="benchmark",
                created_by="benchmark",
                origin="person",
            )
        )
    Tool.objects.bulk_create(tools, batch_size=1000)
    ToolVersion.objects.bulk_create(versions, batch_size=1000)
    for tool, version in zip(tools, versions, strict=True):
        tool.version = version
    Tool.objects.bulk_update(tools, ["version"], batch_size=1000)
    return tools


def _grant(agent: Agent, tools: list[Tool]) -> None:
    execute = Permission.objects.get(codename=EXECUTE, content_type__app_label="tools")
    rows = [
        ToolUserObjectPermission(
            user=agent.service_account, permission=execute, content_object=tool
        )
        for tool in tools
    ]
    ToolUserObjectPermission.objects.bulk_create(rows)


if __name__ == "__main__":
    main()
