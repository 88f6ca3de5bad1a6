"""A mail server on loopback, over real sockets; keeps what is handed in.

with receiving() as office:
    ...
    assert office.mails[0].to == "eve@example.com"
"""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mail:
    sender: str
    to: str
    text: str


@dataclass
class Office:
    port: int
    mails: list[Mail] = field(default_factory=list)
    refusal: str = ""  # the answer to every recipient, such as "451 later"

    @property
    def options(self) -> dict[str, object]:
        """As the product's settings have them."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "username": "",
            "password": "",
            "use_ssl": False,
            "use_tls": False,
        }


class _Conversation(socketserver.StreamRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        sender = to = ""
        self._say("220 stub")
        while line := self.rfile.readline().decode().strip():
            verb = line[:4].upper()
            if verb == "MAIL":
                sender = line.partition("<")[2].partition(">")[0]
            elif verb == "RCPT":
                to = line.partition("<")[2].partition(">")[0]
            if verb == "RCPT" and self.server.office.refusal:
                self._say(self.server.office.refusal)
            elif verb == "DATA":
                self._say("354 go on")
                self.server.office.mails.append(Mail(sender, to, self._text()))
                self._say("250 kept")
            else:
                self._say("221 bye" if verb == "QUIT" else "250 fine")

    def _text(self) -> str:
        lines: list[str] = []
        while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
            lines.append(line)
        return "\n".join(lines)

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    office: Office


@contextmanager
def receiving() -> Iterator[Office]:
    with _Server(("127.0.0.1", 0), _Conversation) as server:
        server.office = Office(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.office
        finally:
            server.shutdown()
            thread.join()
