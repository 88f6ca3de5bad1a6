"""The two doors to the network: spellings, names, redirects, paths, frames, and a proxy's ways.

Every public name is allowed to most of them; a service of the host's loopback is what they want.
"""

import gc
import os
import socket

from sandbox.egress.rules.egress_policy import EgressLimits, EgressPolicy, HostRule
from sandbox.spec import Network
from tests.attacks.attack import SANDBOXED, STANDARD, STRICT, attack
from tests.attacks.evidence import (
    got_something,
    knocked,
    leaked_the_secret,
    was_let_through,
    wrote_too_much,
)
from tests.attacks.kit import Parameters, ask, forever, succeeds, through_proxy
from tests.attacks.scene import Scene

_LEVELS = (STANDARD, STRICT)


def everything(scene: Scene) -> EgressPolicy:
    ports = (80, 443, scene.port, scene.web_port)
    return EgressPolicy((HostRule("*", ports=ports),), EgressLimits(request_s=2))


def a_little(scene: Scene) -> EgressPolicy:
    """One host, one method, one path; and what opens its door, which the run may not have."""
    rule = HostRule(
        "good.example",
        ports=(scene.web_port,),
        methods=("GET",),
        paths=("/open",),
        headers=(("Authorization", scene.secret),),
    )
    other = HostRule("other.example", ports=(scene.web_port,))
    limits = EgressLimits(requests=20, response_bytes=1 << 20, request_s=2)
    return EgressPolicy((rule, other), limits)


# {port} is that of the service that must not be reached, {web} of the one that may be.
_SPELLINGS = {
    "as it is": "http://127.0.0.1:{port}/",
    "by name": "http://localhost:{port}/",
    "by name in capitals with a dot": "http://LOCALHOST.:{port}/",
    "short": "http://127.1:{port}/",
    "hexadecimal in part": "http://0x7f.1:{port}/",
    "hexadecimal": "http://0x7f000001:{port}/",
    "octal": "http://0177.0.0.1:{port}/",
    "octal at length": "http://017700000001:{port}/",
    "as one number": "http://2130706433:{port}/",
    "nothing at all": "http://0:{port}/",
    "any address": "http://0.0.0.0:{port}/",
    "with zeros in front": "http://127.000.000.001:{port}/",
    "in the newer protocol": "http://[::1]:{port6}/",
    "mapped": "http://[::ffff:127.0.0.1]:{port}/",
    "mapped in hexadecimal": "http://[::ffff:7f00:1]:{port}/",
    "with a zone": "http://[::1%25lo]:{port6}/",
    "without brackets": "http://::1:{port6}/",
    "in circles": "http://①②⑦.⓪.⓪.①:{port}/",
    "in full width": "http://１２７.０.０.１:{port}/",
    "with dots of another script": "http://127。0。0。1:{port}/",
    "escaped": "http://%31%32%37.0.0.1:{port}/",
    "with an escaped dot": "http://127%2e0%2e0%2e1:{port}/",
    "after a user": "http://good.example@127.0.0.1:{port}/",
    "after a user with a port": "http://good.example:80@127.0.0.1:{port}/",
    "after a backslash": "http://good.example\\@127.0.0.1:{port}/",
    "before a fragment": "http://127.0.0.1:{port}#@good.example/",
    "before a question": "http://127.0.0.1:{port}?@good.example/",
    "with NUL": "http://127.0.0.1:{port}\0.good.example/",
    "with an escaped NUL": "http://127.0.0.1:{port}%00.good.example/",
    "with a line break": "http://127.0.0.1:{port}\r\n.good.example/",
    "with a space": "http://127.0.0.1:{port} .good.example/",
    "with a tab": "http://127.0.0.1:{port}\t.good.example/",
    "with many slashes": "http:////127.0.0.1:{port}/",
    "without slashes": "http:127.0.0.1:{port}/",
    "with a soft hyphen": "http://local\u00adhost:{port}/",
    "with a letter that folds": "http://lo\u212aalhost:{port}/".replace("\u212a", "\u216d"),
}
_ONLY_HERE = {"with many slashes", "without slashes", "with a soft hyphen"}
_NAMES = ("sneaky.example", "mapped.example", "newer.example", "any.example", "notgood.example",
          "good.example.sneaky.example", "translated.example", "sixtofour.example",
          "metadata.google.internal", "cloud.example", "inner.example")  # fmt: skip
_UNROUTED = {"translated.example", "sixtofour.example", "inner.example", "cloud.example",
             "metadata.google.internal", "newer.example"}  # fmt: skip


def asks_for_the_loopback(p: Parameters) -> object:
    url = p["url"].replace("{port6}", str(p["ports"].get("tcp6", 1)))
    return [ask(url.replace("{port}", str(p["ports"]["tcp"])), timeout_s=p["patience_s"])]


for _name, _url in _SPELLINGS.items():
    attack(
        levels=_LEVELS,
        seen=(knocked, got_something, was_let_through),
        network=Network.HELPER,
        egress=everything,
        variant=_name,
        extra={"url": _url},
        toothless="no client makes an address of it" if _name in _ONLY_HERE else "",
        together=True,
    )(asks_for_the_loopback)


def asks_for_a_name_that_leads_inwards(p: Parameters) -> object:
    return [ask(f"http://{p['name']}:{p['ports']['tcp']}/", timeout_s=p["patience_s"])]


for _name in _NAMES:
    attack(
        levels=_LEVELS,
        seen=(knocked, got_something, was_let_through),
        network=Network.HELPER,
        egress=everything,
        variant=_name,
        extra={"name": _name},
        toothless="the control has nothing at that address" if _name in _UNROUTED else "",
        together=True,
    )(asks_for_a_name_that_leads_inwards)


@attack(
    levels=_LEVELS,
    seen=(knocked, was_let_through),
    network=Network.HELPER,
    egress=everything,
    toothless="a hosts file does not change its mind",
)
def asks_twice_for_a_name_that_changes_its_mind(p: Parameters) -> object:
    """Public when it is looked at, the loopback when it is dialled."""
    for _ in range(4):
        succeeds(
            lambda: ask(f"http://rebinding.example:{p['ports']['tcp']}/", timeout_s=p["patience_s"])
        )
    return []


def asks_by_another_scheme(p: Parameters) -> object:
    return [ask(p["url"].format(**p, port=p["ports"]["tcp"]), timeout_s=p["patience_s"])]


for _name, _url in {
    "file": "file://{secret}",
    "a file of a host": "file://localhost{secret}",
    "gopher": "gopher://127.0.0.1:{port}/_GET",
    "ftp": "ftp://127.0.0.1:{port}/",
    "a socket": "unix://{base}/knock",
    "data": "data:text/plain,secret",
    "nothing": "//127.0.0.1:{port}/",
    "telnet": "telnet://127.0.0.1:{port}/",
}.items():
    attack(
        levels=_LEVELS,
        seen=(knocked, got_something, leaked_the_secret),
        network=Network.HELPER,
        egress=everything,
        variant=_name,
        extra={"url": _url},
        toothless="" if "{port}" in _url else "the control's client knows only one scheme",
        together=True,
    )(asks_by_another_scheme)


def asks_for_what_is_closed(p: Parameters) -> object:
    """A path that a server understands otherwise than the one who checks it."""
    return [ask(f"http://good.example:{p['ports']['web']}{p['path']}", timeout_s=0.5)]


for _path in ("/closed", "/open/../closed", "/open/..%2fclosed", "/open/%2e%2e/closed",
              "/open/%2e%2e%2fclosed", "/open\\..\\closed", "/open/..\\closed", "/open/..;/closed",
              "/open/.%2e/closed", "//closed", "/open/../../closed", "/open/x/../../closed",
              "/open%2f..%2fclosed", "/openness/../closed", "/closed?/open", "/closed#/open",
              "/open%00/../../closed", "/./closed", "/open/%252e%252e/closed"):  # fmt: skip
    attack(
        levels=_LEVELS,
        seen=(knocked, leaked_the_secret),
        network=Network.HELPER,
        egress=a_little,
        variant=_path,
        extra={"path": _path},
        toothless="no server undoes it twice" if "%25" in _path or "#" in _path else "",
        together=True,
    )(asks_for_what_is_closed)


def asks_by_another_method(p: Parameters) -> object:
    return [ask(f"http://good.example:{p['ports']['web']}/open/x", p["method"], timeout_s=0.5)]


for _method in (
    "POST",
    "DELETE",
    "TRACE",
    "CONNECT",
    "GET /closed HTTP/1.1\r\nX:",
    "GET\t",
    "get ",
):
    attack(
        levels=_LEVELS,
        seen=(knocked, was_let_through, leaked_the_secret),
        network=Network.HELPER,
        egress=a_little,
        variant=ascii(_method),
        extra={"method": _method},
        toothless="" if "closed" in _method else "what it does is the server's own",
        together=True,
    )(asks_by_another_method)


def smuggles_a_request_in_a_header(p: Parameters) -> object:
    name, value = p["header"]
    return [
        ask(f"http://good.example:{p['ports']['web']}/open/x", headers={name: value}, timeout_s=0.5)
    ]


_SECOND = "GET /closed HTTP/1.1\r\nHost: good.example\r\n\r\n"
for _name, _header in {
    "in a value": ("X", f"a\r\nContent-Length: 0\r\n\r\n{_SECOND}"),
    "in a value with bare line feeds": ("X", f"a\nContent-Length: 0\n\n{_SECOND}"),
    "in a name": (f"X: a\r\nContent-Length: 0\r\n\r\n{_SECOND}Y", "b"),
    "by another host": ("Host", "127.0.0.1"),
    "by another length": ("Content-Length", "0"),
    "by chunks": ("Transfer-Encoding", "chunked"),
    "by an upgrade": ("Connection", "Upgrade, Host"),
    "by an expectation": ("Expect", "100-continue"),
    "by a folded line": ("X", "a\r\n b"),
    "by NUL": ("X", "a\0b"),
}.items():
    attack(
        levels=_LEVELS,
        seen=(knocked, leaked_the_secret),
        network=Network.HELPER,
        egress=a_little,
        variant=_name,
        extra={"header": list(_header)},
        toothless="" if "closed" in str(_header) else "it takes two servers that disagree",
        together=True,
    )(smuggles_a_request_in_a_header)


def follows_where_it_is_sent(p: Parameters) -> object:
    url = f"http://good.example:{p['ports']['web']}/open/{p['place']}"
    return [ask(url, timeout_s=0.5, redirects=5)]


for _place in ("canary", "sneaky", "odd", "relative", "file", "further", "other"):
    attack(
        levels=_LEVELS,
        seen=(knocked, leaked_the_secret),
        network=Network.HELPER,
        egress=a_little,
        variant=f"to {_place}",
        extra={"place": _place},
        toothless="the control's client knows only one scheme" if _place == "file" else "",
    )(follows_where_it_is_sent)


@attack(levels=_LEVELS, seen=(leaked_the_secret,), network=Network.HELPER, egress=a_little)
def searches_itself_for_credentials(p: Parameters) -> object:
    """They are added outside: after a request of its own there is nothing of them inside."""
    succeeds(lambda: ask(f"http://good.example:{p['ports']['web']}/open/lines", timeout_s=0.5))
    holders = [getattr(one, "__dict__", one) for one in gc.get_objects()]
    values = [value for one in holders if isinstance(one, dict | list) for value in
              (list(one.values()) if isinstance(one, dict) else one)]  # fmt: skip
    return [one for one in values if isinstance(one, str) and one.startswith("secret-")]


@attack(levels=_LEVELS, seen=(wrote_too_much,), network=Network.HELPER, egress=a_little,
        memory_bytes=512 << 20, output_bytes=40 << 20)  # fmt: skip
def asks_for_more_than_it_may_have(p: Parameters) -> object:
    return ask(f"http://good.example:{p['ports']['web']}/open/flood", timeout_s=2)


@attack(levels=_LEVELS, seen=(got_something,), network=Network.HELPER, egress=a_little)
def asks_more_often_than_it_may(p: Parameters) -> object:
    url = f"http://good.example:{p['ports']['web']}/open/x"
    answered = [succeeds(lambda: ask(url, timeout_s=0.5)) for _ in range(30)]
    return sum(answered) > 20


def breaks_the_rules_of_the_door(p: Parameters) -> object:
    """Frames that no helper of ours sends."""
    os.write(4, bytes.fromhex(p["frames"]))
    return os.read(4, 65536).decode("latin-1")


def _frame(kind: int, number: int, payload: bytes) -> bytes:
    return (
        (5 + len(payload)).to_bytes(4, "big") + bytes([kind]) + number.to_bytes(4, "big") + payload
    )


_HEAD = b'{"method":"GET","url":"http://127.0.0.1:%d/","headers":[],"length":0,"timeout_s":1}'
for _name, _frames in {
    "a length that cannot be": b"\xff\xff\xff\xff" + b"x" * 50,
    "a length of nothing": b"\0\0\0\0" * 20,
    "a kind that there is not": _frame(99, 1, b"{}"),
    "a piece of nothing": _frame(2, 1, b"x" * 100),
    "an answer": _frame(4, 1, b'{"status":200,"headers":[]}'),
    "no JSON": _frame(1, 1, b"not json"),
    "JSON of the wrong kind": _frame(1, 1, b"[1,2]"),
    "JSON without end": _frame(1, 1, b"[" * 100_000),
    "a key twice": _frame(1, 1, b'{"url":"http://a/","url":"http://b/"}'),
    "a number twice": _frame(1, 7, _HEAD % 80) + _frame(1, 7, _HEAD % 81),
    "a time without end": _frame(1, 1, _HEAD.replace(b'"timeout_s":1', b'"timeout_s":1e999') % 80),
    "a body of less than nothing": _frame(1, 1, _HEAD.replace(b'"length":0', b'"length":-1') % 80),
    "cancels of everything": b"".join(_frame(3, n, b"") for n in range(2000)),
    "headers that are no text": _frame(1, 1, _HEAD.replace(b"[]", b"[[1,2],[3]]") % 80),
}.items():
    attack(
        levels=_LEVELS,
        seen=(knocked, was_let_through),
        ends=("", "TOOL_ERROR", "TIMEOUT"),
        network=Network.HELPER,
        egress=everything,
        variant=f"with {_name}",
        extra={"frames": _frames.hex()},
        toothless="the control has no such door",
        wall_s=0.4,
        silent=True,
    )(breaks_the_rules_of_the_door)


@attack(levels=_LEVELS, seen=(knocked, was_let_through), network=Network.HELPER,
        ends=("", "TIMEOUT", "TOOL_ERROR"), wall_s=0.4, egress=everything, silent=True,
        toothless="the control has no such door")  # fmt: skip
def says_half_of_what_it_wants_at_the_door(p: Parameters) -> object:
    os.write(4, b"\0\0\1")
    forever()


def asks_the_proxy(p: Parameters) -> object:
    places = {"{port}": p["ports"]["tcp"], "{web}": p["ports"]["web"]}
    raw = p["raw"]
    for name, port in places.items():
        raw = raw.replace(name, str(port))
    answer = through_proxy(raw.encode("latin-1"))
    return [answer] if "200" in answer[:20] and p["wanted"] else []


_TO_LOOPBACK = {
    "for a tunnel": "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "for a tunnel by name": "CONNECT localhost:{port} HTTP/1.1\r\n\r\n",
    "for a tunnel by number": "CONNECT 2130706433:{port} HTTP/1.1\r\n\r\n",
    "for a tunnel by a mapped address": "CONNECT [::ffff:127.0.0.1]:{port} HTTP/1.1\r\n\r\n",
    "for a tunnel to a name that leads inwards": "CONNECT sneaky.example:{port} HTTP/1.1\r\n\r\n",
    "for a tunnel after a user": "CONNECT good.example@127.0.0.1:{port} HTTP/1.1\r\n\r\n",
    "for a tunnel with NUL": "CONNECT 127.0.0.1:{port}\0.good.example:443 HTTP/1.1\r\n\r\n",
    "for a tunnel to a URL": "CONNECT http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
    "for a page": "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "for a page by number": "GET http://2130706433:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "for a page after a backslash": "GET http://good.example\\@127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
    "for a page by its host line": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    "in the oldest way": "GET http://127.0.0.1:{port}/\r\n\r\n",
    "with bare line feeds": "GET http://127.0.0.1:{port}/ HTTP/1.1\nHost: x\n\n",
    "after something allowed": (
        "GET http://good.example:{web}/open/x HTTP/1.1\r\nHost: good.example\r\n\r\n"
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    ),
}
_BY_CONFUSION = {
    "with two lengths": (
        "POST http://good.example:{web}/open/x HTTP/1.1\r\nHost: good.example\r\n"
        "Content-Length: 4\r\nContent-Length: 60\r\n\r\n"
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n"
    ),
    "with a length and chunks": (
        "POST http://good.example:{web}/open/x HTTP/1.1\r\nHost: good.example\r\n"
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        "GET /closed HTTP/1.1\r\nHost: good.example\r\n\r\n"
    ),
    "with odd chunks": (
        "POST http://good.example:{web}/open/x HTTP/1.1\r\nHost: good.example\r\n"
        "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"
    ),
    "with an upgrade": (
        "GET http://good.example:{web}/open/x HTTP/1.1\r\nHost: good.example\r\n"
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    ),
    "in another protocol": "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x1f\x90",
    "with a handshake": "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    "with a line without end": "GET http://good.example/" + "x" * 200_000,
    "with headers without end": "GET http://good.example/ HTTP/1.1\r\n" + "X: y\r\n" * 20_000,
    "for a tunnel to where each request counts": (
        "CONNECT good.example:{web} HTTP/1.1\r\n\r\nGET /closed HTTP/1.1\r\nHost: x\r\n\r\n"
    ),
}
for _table, _policy in ((_TO_LOOPBACK, everything), (_BY_CONFUSION, a_little)):
    for _name, _raw in _table.items():
        attack(
            levels=_LEVELS,
            seen=(knocked, leaked_the_secret),
            network=Network.PROXY,
            egress=_policy,
            variant=_name,
            extra={"raw": _raw, "wanted": False},
            toothless="" if _table is _TO_LOOPBACK else "it takes two servers that disagree",
        )(asks_the_proxy)


def goes_past_the_proxy(p: Parameters) -> object:
    """With a proxy comes a loopback of its own, and sockets to reach it."""
    family, kind, host, port = p["to"]
    one = socket.socket(family, kind)
    one.settimeout(0.3)
    one.connect((host, p["ports"].get(port, port)))
    return [host] if kind == socket.SOCK_STREAM else [one.send(b"x")]


for _name, _to in {
    "on the loopback": (2, 1, "127.0.0.1", "tcp"),
    "on the newer loopback": (10, 1, "::1", "tcp6"),
    "by datagram": (2, 2, "127.0.0.1", "udp"),
    "to the web": (2, 1, "127.0.0.2", "web"),
    "to a metadata service": (2, 1, "169.254.169.254", 80),
}.items():
    attack(
        levels=SANDBOXED,
        seen=(knocked, got_something),
        network=Network.PROXY,
        egress=everything,
        variant=_name,
        extra={"to": list(_to)},
        toothless="nobody listens there" if _to[3] == 80 else "",
        silent=True,
    )(goes_past_the_proxy)


@attack(
    levels=SANDBOXED, seen=(got_something,), network=Network.PROXY, egress=everything, silent=True
)
def listens_beside_the_proxy(p: Parameters) -> object:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.bind(("127.0.0.1", 0))
    one.listen()
    return ["a port"]


def opens_other_sockets_beside_the_proxy(p: Parameters) -> object:
    return [str(socket.socket(*p["socket"]).family)]


for _name, _socket in {
    "datagrams": (2, 2, 0),
    "UNIX": (1, 1, 0),
    "routing": (16, 3, 0),
    "the hypervisor": (40, 1, 0),
    "many paths": (2, 1, 262),
}.items():
    attack(
        levels=SANDBOXED,
        network=Network.PROXY,
        egress=everything,
        variant=f"for {_name}",
        extra={"socket": list(_socket)},
        silent=True,
    )(opens_other_sockets_beside_the_proxy)


@attack(seen=(knocked, got_something), toothless="the control has no such door")
def asks_without_a_door(p: Parameters) -> object:
    """A run that was given no network has no descriptor that leads to one."""
    return [ask(f"http://good.example:{p['ports']['web']}/open/x", timeout_s=0.3)]
