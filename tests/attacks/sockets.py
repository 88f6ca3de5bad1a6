"""Any way to anybody: over the network, over the machine's own sockets, to the hypervisor."""

import os
import socket
import struct

from tests.attacks.attack import ALL, SANDBOXED, STANDARD, attack
from tests.attacks.evidence import got_something, knocked
from tests.attacks.kit import Parameters, call, reached_calls, succeeds, what_works

_METADATA = {
    "most clouds": "169.254.169.254",
    "Alibaba": "100.100.100.200",
    "Azure": "168.63.129.16",
    "Oracle": "192.0.0.192",
    "Amazon over IPv6": "fd00:ec2::254",
}


@attack(seen=(knocked, got_something))
def calls_a_service_on_the_loopback(p: Parameters) -> object:
    socket.create_connection(("127.0.0.1", p["ports"]["tcp"]), 1)
    return ["the loopback"]


@attack(seen=(knocked, got_something))
def calls_a_service_on_the_loopback_of_the_newer_protocol(p: Parameters) -> object:
    socket.create_connection(("::1", p["ports"]["tcp6"]), 1)
    return ["the loopback"]


def calls_a_service_by_another_spelling(p: Parameters) -> object:
    socket.create_connection((p["host"], p["ports"]["tcp"]), 1)
    return [p["host"]]


for _host in (
    "localhost",
    "127.1",
    "0x7f.1",
    "0177.0.0.1",
    "2130706433",
    "0.0.0.0",
    "::ffff:127.0.0.1",
):
    attack(variant=_host, extra={"host": _host}, seen=(knocked, got_something))(
        calls_a_service_by_another_spelling
    )


@attack(seen=(knocked,))
def sends_a_datagram(p: Parameters) -> object:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.sendto(b"x", ("127.0.0.1", p["ports"]["udp"]))
    return []


@attack(seen=(knocked, got_something))
def opens_a_connection_by_sending(p: Parameters) -> object:
    """TCP Fast Open: there is no connect() to be refused."""
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    return [one.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", p["ports"]["tcp"]))]


@attack(seen=(knocked, got_something))
def calls_by_the_protocol_with_many_paths(p: Parameters) -> object:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    one.connect(("127.0.0.1", p["ports"]["tcp"]))
    return ["MPTCP"]


@attack(seen=(knocked, got_something))
def calls_a_named_socket_of_the_host(p: Parameters) -> object:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for way in (
        f"{p['base']}/knock",
        f"{p['arena']}/../knock",
        f"/proc/self/root{p['base']}/knock",
    ):
        if succeeds(lambda at=way: one.connect(at)):
            return [way]
    return []


@attack(seen=(knocked, got_something))
def calls_a_named_socket_through_a_link(p: Parameters) -> object:
    os.symlink(f"{p['base']}/knock", f"{p['arena']}/knock")
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(f"{p['arena']}/knock")
    return ["a socket"]


@attack(seen=(knocked, got_something))
def calls_an_abstract_socket_of_the_host(p: Parameters) -> object:
    """No file, no permission: who is in the same network namespace may call."""
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(f"\0{p['abstract']}")
    return ["a socket"]


@attack(seen=(knocked, got_something))
def calls_from_one_end_of_a_pair(p: Parameters) -> object:
    """A pair of datagram sockets may be had; each of them could be connected elsewhere."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    two, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return what_works(
        {
            "stream": lambda: one.connect(f"\0{p['abstract']}"),
            "datagram": lambda: two.sendto(b"x", f"\0{p['abstract']}"),
            "bound": lambda: two.bind(f"\0{p['marker']}"),
        }
    )


@attack(seen=(got_something,))
def calls_sandboxd_itself(p: Parameters) -> object:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.connect(p["sandboxd"])
    return ["sandboxd"]


@attack(seen=(got_something,))
def listens_on_an_abstract_name(p: Parameters) -> object:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.bind(f"\0{p['marker']}")
    one.listen()
    return ["a name"]


@attack(seen=(got_something,))
def listens_on_a_port(p: Parameters) -> object:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.bind(("0.0.0.0", 0))
    one.listen()
    return [one.getsockname()]


def asks_a_metadata_service(p: Parameters) -> object:
    family = socket.AF_INET6 if ":" in p["address"] else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setblocking(False)
    return [p["address"]] if one.connect_ex((p["address"], 80)) in (0, 115) else []


for _name, _address in _METADATA.items():
    attack(
        variant=_name,
        extra={"address": _address},
        toothless="the control's network has no way there; its socket is what it gets"
        if ":" in _address
        else "",
        together=True,
    )(asks_a_metadata_service)


@attack(seen=(got_something,))
def asks_for_names(p: Parameters) -> object:
    """A name in a question is a message to who answers it."""
    return [found[4][0] for found in socket.getaddrinfo("localhost", 80)]


@attack(seen=(got_something,))
def asks_a_name_server_by_hand(p: Parameters) -> object:
    question = b"\x12\x34\x01\x00\x00\x01" + bytes(6) + b"\x06secret\x07example\x00\x00\x01\x00\x01"
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    return [one.sendto(question, ("127.0.0.1", 53))]


# family, type, protocol; what ordinary users may have on this kernel
_FAMILIES = {
    "IPv4 stream": (2, 1, 0),
    "IPv4 datagram": (2, 2, 0),
    "IPv6 stream": (10, 1, 0),
    "IPv6 datagram": (10, 2, 0),
    "UDP-Lite": (2, 2, 136),
    "UNIX stream": (1, 1, 0),
    "UNIX datagram": (1, 2, 0),
    "UNIX packets": (1, 5, 0),
    "routing": (16, 3, 0),
    "device events": (16, 2, 15),
    "audit": (16, 3, 9),
    "generic netlink": (16, 3, 16),
    "the hypervisor": (40, 1, 0),
}
_RARE_FAMILIES = {
    "the hypervisor by datagram": (40, 2, 0),
    "IPv4 raw": (2, 3, 255),
    "IPv6 raw": (10, 3, 58),
    "ping": (2, 2, 1),
    "packets": (17, 3, 0x300),
    "SCTP": (2, 1, 132),
    "the kernel's ciphers": (38, 5, 0),
    "keys of IPsec": (15, 3, 2),
    "Bluetooth": (31, 3, 1),
    "TIPC": (30, 1, 0),
    "CAN": (29, 3, 1),
    "RDS": (21, 5, 0),
    "Qualcomm": (42, 2, 0),
    "SMC": (43, 1, 0),
    "XDP": (44, 3, 0),
    "X.25": (9, 5, 0),
    "AppleTalk": (5, 2, 0),
    "phones": (35, 2, 0),
    "KCM": (41, 2, 0),
    "near field": (39, 5, 0),
    "MCTP": (45, 2, 0),
    "LLC": (26, 1, 0),
    "IUCV": (32, 1, 0),
    "AX.25": (3, 2, 0),
}


def opens_a_socket(p: Parameters) -> object:
    return [call("socket", *p["socket"])]


for _table, _toothless in (
    (_FAMILIES, ""),
    (_RARE_FAMILIES, "root's alone, or not in this kernel"),
):
    for _name, _socket in _table.items():
        attack(
            levels=ALL if _socket[0] == 40 else SANDBOXED,
            variant=f"for {_name}",
            extra={"socket": list(_socket)},
            toothless=_toothless,
            together=True,
        )(opens_a_socket)


def opens_a_pair(p: Parameters) -> object:
    both = struct.pack("=ii", 0, 0)
    return reached_calls({"socketpair": (p["family"], 1, 0, both)})


for _name, _family in {"IPv4": 2, "TIPC": 30, "the hypervisor": 40, "routing": 16}.items():
    attack(
        variant=f"for {_name}",
        extra={"family": _family},
        toothless="there are no pairs of these, sandbox or not",
        together=True,
    )(opens_a_pair)


@attack(seen=(knocked, got_something), levels=(STANDARD,))
def has_a_program_call(p: Parameters) -> object:
    """Programs of the machine, which have their own ideas of how to get out."""
    port = p["ports"]["tcp"]
    commands = {
        "bash": f"exec 3<>/dev/tcp/127.0.0.1/{port}",
        "bash by datagram": f"echo x > /dev/udp/127.0.0.1/{p['ports']['udp']}",
        "perl": f"perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(q(127.0.0.1:{port}))'",
        "curl": f"curl -s -m 1 --http0.9 telnet://127.0.0.1:{port} </dev/null",
    }
    started = {name: os.posix_spawn("/bin/bash", ["bash", "-c", line], dict(os.environ))
               for name, line in commands.items()}  # fmt: skip
    return [name for name, child in started.items() if os.waitpid(child, 0)[1] == 0]


@attack()
def looks_at_its_interfaces(p: Parameters) -> object:
    return [name for _, name in socket.if_nameindex()]
