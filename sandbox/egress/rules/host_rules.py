"""Find the rule of a run that allows a request. Pure: a policy is parsed once, then only queried.

The rules whose host is the most exact decide alone: an exact name before the longest suffix before
`*`. So a rule for one host narrows what a wider rule would have allowed.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from sandbox.egress.rules import grammar
from sandbox.egress.rules.egress_policy import Code, Denied, EgressPolicy, HostRule
from sandbox.egress.rules.grammar import BrokenGrammar, Host, Url, parse_host, split_url
from sandbox.errors import SpecInvalid

MOST_RULES = 1000
MOST_HEADERS = 32
LONGEST_HEADER_VALUE = 8192
TLS_PORTS = frozenset({443, 465, 636, 853, 993, 995, 8443})
METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ !-~]*[!-~])?)?")
# A server answers TRACE with the request as it came, credentials included.
_NEVER = frozenset({"CONNECT", "TRACE", "TRACK"})
# These belong to a connection or to the framing of a message, and the broker writes them.
OF_THE_CONNECTION = frozenset(
    {"connection", "content-length", "expect", "host", "http2-settings", "keep-alive"}
    | {"proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)


@dataclass(frozen=True)
class CompiledHostRule:
    """A host rule in the form it is compared in."""

    given: HostRule
    host: Host | None = None
    suffix: str = ""  # with its leading dot; neither host nor suffix: every public name

    @property
    def limited(self) -> bool:
        """Something in it needs to see each request."""
        return bool(self.given.methods or self.given.paths or self.given.headers)

    @cached_property
    def exactness(self) -> int:
        return 1 << 16 if self.host else len(self.suffix)

    def covers(self, host: Host) -> bool:
        if self.host is not None:
            return host == self.host
        return host.address is None and host.text.endswith(self.suffix)


def read_rule(rule: HostRule) -> CompiledHostRule:
    """Raises SpecInvalid."""
    _check_lists(rule)
    try:
        if rule.host == "*":
            return CompiledHostRule(rule)
        if rule.host.startswith("*."):
            return CompiledHostRule(rule, suffix="." + _parse_named_host(rule.host[2:]).text)
        return CompiledHostRule(rule, host=_rule_host(rule.host))
    except BrokenGrammar as reason:
        raise SpecInvalid(f"not a host a rule may have: {rule.host[:80]!r} ({reason})") from None


class Rules:
    """Raises SpecInvalid for a policy no broker takes: also checks a policy that is being
    written."""

    def __init__(self, policy: EgressPolicy) -> None:
        if len(policy.rules) > MOST_RULES:
            raise SpecInvalid(f"more than {MOST_RULES} rules")
        self._rules = tuple(read_rule(rule) for rule in policy.rules)

    def admit(self, method: str, url: Url) -> HostRule:
        """The rule that lets a request through. Raises Denied."""
        rules = self._on_port(url.host, url.port)
        if not METHOD.fullmatch(method) or method in _NEVER:
            raise Denied(Code.METHOD_NOT_ALLOWED, "no request may have this method")
        rules = _keep(
            rules,
            lambda rule: not rule.given.methods or method in rule.given.methods,
            Denied(Code.METHOD_NOT_ALLOWED, f"{method} is not allowed on {url.host}"),
        )
        rules = _keep(
            rules,
            lambda rule: not rule.given.paths or _inside(url.path, rule.given.paths),
            Denied(Code.PATH_NOT_ALLOWED, f"this path is not allowed on {url.host}"),
        )
        return rules[0].given

    def admit_tunnel(self, host: Host, port: int) -> HostRule:
        """The same for CONNECT, which hides method, path and headers. Raises Denied."""
        rules = self._on_port(host, port)
        if any(rule.limited for rule in rules):
            reason = f"each request to {host} has to be seen: no tunnel leads there"
            raise Denied(Code.TUNNEL_NOT_ALLOWED, reason)
        if port == 80:
            reason = "plain HTTP needs no tunnel: ask for the http URL"
            raise Denied(Code.TUNNEL_NOT_ALLOWED, reason)
        return rules[0].given

    def _on_port(self, host: Host, port: int) -> list[CompiledHostRule]:
        rules = _keep(
            _most_exact(rule for rule in self._rules if rule.covers(host)),
            lambda rule: True,
            Denied(Code.HOST_NOT_ALLOWED, f"{host} is not an allowed host"),
        )
        refusal = Denied(Code.PORT_NOT_ALLOWED, f"port {port} is not allowed on {host}")
        return _keep(rules, lambda rule: port in rule.given.ports, refusal)


def _most_exact(covering: Iterable[CompiledHostRule]) -> list[CompiledHostRule]:
    rules = list(covering)
    exactness = max((rule.exactness for rule in rules), default=0)
    return [rule for rule in rules if rule.exactness == exactness]


def _keep(
    rules: list[CompiledHostRule], wanted: Callable[[CompiledHostRule], bool], otherwise: Denied
) -> list[CompiledHostRule]:
    kept = [rule for rule in rules if wanted(rule)]
    if not kept:
        raise otherwise
    return kept


def _inside(path: str, prefixes: tuple[str, ...]) -> bool:
    return grammar.is_plain(path) and any(grammar.has_prefix(path, prefix) for prefix in prefixes)


def _rule_host(text: str) -> Host:
    """Brackets around an IPv6 address are for URLs; people leave them out."""
    bare = ":" in text and not text.startswith("[")
    return parse_host(f"[{text}]" if bare else text)


def _parse_named_host(text: str) -> Host:
    host = parse_host(text)
    if host.address is not None:
        raise BrokenGrammar("an address has no names below it")
    return host


def _check_lists(rule: HostRule) -> None:
    if not rule.ports or any(not 0 < port < 65536 for port in rule.ports):
        raise SpecInvalid("a rule needs ports from 1 to 65535")
    for method in rule.methods:
        if not METHOD.fullmatch(method) or method in _NEVER:
            raise SpecInvalid(f"not a method a rule may have: {method[:40]!r}")
    for path in rule.paths:
        _check_prefix(path)
    if len(rule.headers) > MOST_HEADERS:
        raise SpecInvalid(f"more than {MOST_HEADERS} headers in a rule")
    for name, value in rule.headers:
        _check_credential(name, value)


def _check_prefix(path: str) -> None:
    try:
        _, _, target = split_url(f"http://host{path}")
    except BrokenGrammar:
        target = ""
    if target != path or "?" in path or not grammar.is_plain(path):
        raise SpecInvalid(f"not a path prefix: {path[:80]!r}")


def _check_credential(name: str, value: str) -> None:
    """The value is a secret: no message contains it."""
    if not HEADER_NAME.fullmatch(name) or name.lower() in OF_THE_CONNECTION:
        raise SpecInvalid(f"not a header a rule may add: {name[:80]!r}")
    if len(value) > LONGEST_HEADER_VALUE or not _HEADER_VALUE.fullmatch(value):
        raise SpecInvalid(f"the value of {name} is not a header's")
