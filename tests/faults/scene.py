"""What stands in the crib before the faults begin: organizations, agents, and tools with effects.

Runs inside `manage.py shell`, in the product's own settings; prints what the clients need as JSON.
"""

import json
from decimal import Decimal
from typing import Any

from tests import factories
from tests.faults.clients import DELIVERIES
from tests.faults.service import WORK
from tools.catalog.sandbox import profiles
from tools.limits.allowances import set_allowances

ORGANIZATIONS = ("north", "south")
SOURCE = """
import json
import os
import time

import sandbox_http


def main(parameters):
    run = os.urandom(8).hex()
    if parameters["before_s"]:
        report_effect(parameters, run, "begin")
        time.sleep(parameters["before_s"])
    report_effect(parameters, run, "effect")
    time.sleep(parameters["after_s"])
    return {"key": parameters["key"], "run": run}


def report_effect(parameters, run, what):
    line = json.dumps({"key": parameters["key"], "run": run, "what": what}).encode()
    answer = sandbox_http.request("POST", parameters["ledger"], body=line, timeout_s=20)
    if answer.status != 204:
        raise RuntimeError(f"the service answered {answer.status}")
"""
_WORK = {"key": "String", "before_s": "Number", "after_s": "Number"}


def prepare(port: int) -> dict[str, Any]:
    """The tokens of each organization's agent; their tools reach the service on this port."""
    return {slug: _organization(slug, port) for slug in ORGANIZATIONS}


def print_scene(port: int) -> None:
    print(json.dumps(prepare(port)))


def _organization(slug: str, port: int) -> str:
    organization = factories.organization(slug)
    profiles.create_profile(
        organization=organization,
        profile={
            "name": "ledger",
            "allow_network": True,
            "allowed_hosts": [{"host": "127.0.0.1", "ports": [port]}],
        },
        by=factories.actor(organization),
        everywhere=True,
    )
    for delivery in DELIVERIES:
        factories.tool(
            organization,
            f"tell_{delivery}",
            delivery=delivery,
            parameters=_parameters(_WORK | {"ledger": "String"}),
            implementation={"source": SOURCE},
            constraints={"sandbox_profile": "ledger"},
        )
        factories.tool(
            organization,
            f"send_{delivery}",
            type="http",
            delivery=delivery,
            parameters=_parameters(_WORK),
            implementation={
                "method": "POST",
                "url": f"http://127.0.0.1:{port}{WORK}",
                "body": {name: f"{{{name}}}" for name in _WORK},
            },
            constraints={"sandbox_profile": "ledger"},
        )
    agent = factories.agent(organization, "caller", groups=["default"])
    quotas = [{"tool": None, "kind": "calls", "period": "month", "amount": Decimal(10**6)}]
    set_allowances(agent=agent, by=factories.actor(organization), changes={"quotas": quotas})
    return factories.token(agent.service_account)


def _parameters(kinds: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": kind, "description": name, "required": True}
        for name, kind in kinds.items()
    ]
