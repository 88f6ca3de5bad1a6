"""Names to addresses, with a server of names of our own in a network of its own."""

import json
import os

import pytest

from sandbox.egress.denials import Denied
from sandbox.egress.grammar import parse_host
from sandbox.egress.resolve import MOST_ADDRESSES, Resolver, Turns
from tests.sandbox.egress.conftest import python
from tests.sandbox.egress.loops import in_a_loop_of_its_own

SCENE = """
import json, os, socket, sys, tempfile, threading
from sandbox.egress import resolve
from sandbox.inside import libc, network

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
network.proxy_listener().close()
with tempfile.NamedTemporaryFile("w") as file:
    file.write("nameserver 127.0.0.1\\nsearch corp.example lan\\noptions ndots:5\\n")
    file.flush()
    libc.mount(file.name, "/etc/resolv.conf", flags=libc.MS_BIND)
server, asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
server.bind(("127.0.0.1", 53))
threading.Thread(target=serve, args=(server, asked), daemon=True).start()
resolve.prepare_system_lookup()
for name in ("api", "api.example"):
    try:
        resolve.system_lookup(name)
    except OSError:
        continue
print(json.dumps(sorted(set(asked))))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root for a network of its own")
def test_only_the_name_itself_is_asked_for_whatever_the_search_list_says():
    done = python("-c", SCENE)
    assert json.loads(done.stdout or "[]") == ["api", "api.example"], done.stderr


def resolved(lookup, host: str = "good.example") -> list[str]:
    async def scene() -> list[str]:
        resolver = Resolver(lookup)
        try:
            return [str(one) for one in await resolver.addresses(parse_host(host), Turns())]
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
