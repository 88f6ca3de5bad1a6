"""The address of the web process: check that it is free, and wait until it answers."""

import errno
import json
import socket
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class CannotListen(Exception):
    """The address is unavailable; the message says why."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @property
    def reachable_host(self) -> str:
        """The host by which this machine itself reaches it."""
        return WILDCARDS.get(self.host, self.host)

    def __str__(self) -> str:
        host = f"[{self.reachable_host}]" if ":" in self.reachable_host else self.reachable_host
        return f"http://{host}:{self.port}"

    def check_free(self) -> None:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise CannotListen(self._describe(error)) from error

    def _describe(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"Port {self.port} is in use: stop what listens there,"
                f" or choose another with make run PORT={self.port + 1}."
            )
        return f"Cannot listen on {self.host} port {self.port}: {error.strerror}."

    def choose_port(self, wanted: int = 0) -> int:
        """`wanted` if it is given, else the port after this one if that is free, else any."""
        if wanted:
            Address(self.host, wanted).check_free()
            return wanted
        try:
            Address(self.host, self.port + 1).check_free()
        except (CannotListen, OverflowError):
            return _free_port(self.host)
        return self.port + 1

    def listening(self) -> bool:
        try:
            socket.create_connection((self.reachable_host, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def readiness_flaw(self) -> str | None:
        """None when /readyz says yes, or misses only what the machine lacks; else what it text."""
        connection = HTTPConnection(self.reachable_host, self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            text = answer.read(64_000).decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            return str(error) or type(error).__name__
        finally:
            connection.close()
        if answer.status == 200 or _lacks_only_sandbox(text):
            return None
        return f"{answer.status} {_compact(text)}"


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _lacks_only_sandbox(text: str) -> bool:
    """Everything answers; sandboxd serves less than Standard, which every page says."""
    try:
        body = json.loads(text)
    except ValueError:
        return False
    failing = {name for name, answer in body.get("checks", {}).items() if answer != "ok"}
    return failing == {"sandbox"} and "sandbox" in body


def _compact(text: str) -> str:
    try:
        return json.dumps(json.loads(text), separators=(", ", ": "))
    except ValueError:
        return text.strip()[:300]
