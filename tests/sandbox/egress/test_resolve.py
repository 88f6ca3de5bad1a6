"""Names to addresses, with a server of names of our own in a network of its own."""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from sandbox.egress.dial import MOST_ADDRESSES, LookupLimit, Resolver
from sandbox.egress.rules.egress_policy import Denied
from sandbox.egress.rules.grammar import parse_host
from tests.sandbox.egress.conftest import python
from tests.sandbox.egress.loops import in_a_loop_of_its_own

SCENE = """
import json, os, socket, sys, tempfile, threading
from sandbox.egress import dial
from sandbox.inside.layers import libc, mounts

def labels(question):
    at, found = 12, []
    while question[at]:
        found.append(question[at + 1 : at + 1 + question[at]].decode())
        at += question[at] + 1
    return ".".join(found), question[12 : at + 5]

def serve(server, asked):
    while True:
        question, client = server.recvfrom(2000)
        name, raw = labels(question)
        asked.append(name)
        server.sendto(question[:2] + b"\\x81\\x83\\0\\1" + bytes(6) + raw, client)

os.unshare(os.CLONE_NEWNS | os.CLONE_NEWNET)
libc.mount("none", "/", flags=libc.MS_REC | libc.MS_SLAVE)
mounts.proxy_listener().close()
with tempfile.NamedTemporaryFile("w") as file:
    file.write("nameserver 127.0.0.1\\nsearch corp.example lan\\noptions ndots:5\\n")
    file.flush()
    libc.mount(file.name, "/etc/resolv.conf", flags=libc.MS_BIND)
server, asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
server.bind(("127.0.0.1", 53))
threading.Thread(target=serve, args=(server, asked), daemon=True).start()
dial.prepare_system_lookup()
for name in ("api", "api.example"):
    try:
        dial.system_lookup(name)
    except OSError:
        continue
print(json.dumps(sorted(set(asked))))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root for a network of its own")
def test_only_the_name_itself_is_asked_for_whatever_the_search_list_says():
    done = python("-c", SCENE)
    assert json.loads(done.stdout or "[]") == ["api", "api.example"], done.stderr


class Held:
    """A server of names that answers nothing of `dead.example` before it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        assert not name.endswith("dead.example") or self.go.wait(60)
        return ["1.1.1.1"]

    async def asks(self, *resolvings: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
        """They have begun, and as many of them as may ask."""
        tasks = [asyncio.ensure_future(one) for one in resolvings]
        for _ in range(20):
            await asyncio.sleep(0)
        return tasks


@contextmanager
def resolver_of(names: Held, **options: Any) -> Iterator[Resolver]:
    resolver = Resolver(names, **options)
    try:
        yield resolver
    finally:
        names.go.set()
        resolver.close()


def dead(resolver: Resolver, organization: str, run: int, number: int):
    host = parse_host(f"n{number}.r{run}.dead.example")
    return resolver.addresses(
        host, TURNS.setdefault((organization, run), LookupLimit(organization))
    )


TURNS: dict[tuple[str, int], LookupLimit] = {}


def test_runs_that_wait_for_a_dead_server_of_names_hold_up_their_organization_alone():
    """Eight runs of one organization ask for four names each; another's name is found."""

    async def scene() -> tuple[list[str], list[str]]:
        names = Held()
        with resolver_of(names) as resolver:
            tasks = await names.asks(
                *(dead(resolver, "evil", run, name) for run in range(8) for name in range(4))
            )
            looked_up = [*names.asked]
            found = await resolver.addresses(parse_host("good.example"), LookupLimit("acme"))
            names.go.set()
            await asyncio.gather(*tasks)
            return looked_up, [str(one) for one in found]

    looked_up, found = in_a_loop_of_its_own(scene())
    assert (len(looked_up), found) == (8, ["1.1.1.1"])


@pytest.mark.parametrize(
    ("organizations", "runs", "whose"),
    [(1, 1, "the run's"), (1, 3, "the organization's"), (5, 2, "everybody's")],
)
def test_a_name_that_was_never_asked_for_is_said_to_be_so(organizations, runs, whose):
    async def scene() -> set[str]:
        names = Held()
        with resolver_of(names, deadline_s=0.3) as resolver:
            tasks = await names.asks(
                *(
                    dead(resolver, f"{whose}{number}", run, name)
                    for number in range(organizations)
                    for run in range(runs)
                    for name in range(5)
                )
            )
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        return {f"{end.code} {end}" for end in ends if isinstance(end, Denied)}

    codes = in_a_loop_of_its_own(scene())
    assert any("LOOKUP_LIMIT" in one and whose in one for one in codes), codes
    assert any(one.startswith("NAME_NOT_RESOLVED") for one in codes)


def test_an_abandoned_lookup_frees_its_place_when_it_ends():
    async def scene() -> list[str]:
        names = Held()
        with resolver_of(names, deadline_s=0.05) as resolver:
            given_up = [dead(resolver, "late", run, name) for run in range(2) for name in range(4)]
            await asyncio.gather(*given_up, return_exceptions=True)
            names.go.set()
            while True:  # until their threads have said so
                with suppress(Denied):
                    found = await resolver.addresses(
                        parse_host("good.example"), LookupLimit("late")
                    )
                    return [str(one) for one in found]

    assert in_a_loop_of_its_own(scene()) == ["1.1.1.1"]


def resolved(lookup, host: str = "good.example") -> list[str]:
    async def scene() -> list[str]:
        resolver = Resolver(lookup)
        try:
            return [str(one) for one in await resolver.addresses(parse_host(host), LookupLimit())]
        finally:
            resolver.close()

    return in_a_loop_of_its_own(scene())


def test_an_address_is_not_asked_for():
    assert resolved(lambda name: pytest.fail("asked"), "1.1.1.1") == ["1.1.1.1"]


def test_answers_keep_their_order_once_each_and_are_not_endless():
    many = [f"1.1.1.{number}" for number in range(100)]
    assert resolved(lambda name: ["1.1.1.9", *many])[:3] == ["1.1.1.9", "1.1.1.0", "1.1.1.1"]
    assert len(resolved(lambda name: many)) == MOST_ADDRESSES


def failing(name: str) -> list[str]:
    raise OSError("no such name")


@pytest.mark.parametrize("lookup", [failing, lambda name: []])
def test_a_failure_and_no_answer_at_all_are_one_code(lookup):
    with pytest.raises(Denied) as caught:
        resolved(lookup)
    assert caught.value.code == "NAME_NOT_RESOLVED"
