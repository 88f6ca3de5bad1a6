"""A real SMTP server (aiosmtpd) on loopback: STARTTLS or TLS, a login, refusals by recipient.

with open_office() as office:
    ...
    assert office.letters[0].recipients == ["eve@example.com"]
"""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tools.httpclient.outbound import EventLoopThread


@dataclass(frozen=True)
class Letter:
    sender: str
    recipients: list[str]
    mail: EmailMessage
    secured: bool


@dataclass
class Office:
    """`refusals` by recipient; `verdict` is the answer to a whole letter."""

    port: int = 0
    letters: list[Letter] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    verdict: str = "250 kept as number 7"
    hangs_up: bool = False

    @property
    def options(self) -> dict[str, object]:
        """The server as the product's settings have it."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "username": "",
            "password": "",
            "use_ssl": False,
            "use_tls": False,
        }

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if refusal := self.refusals.get(address):
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 fine"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        secured = session.ssl is not None or isinstance(
            server.transport.get_extra_info("ssl_object"), ssl.SSLObject
        )
        self.letters.append(Letter(envelope.mail_from, envelope.rcpt_tos, mail, secured))
        if self.hangs_up:
            server.transport.abort()
        return self.verdict

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, given: Any
    ) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.logins.append((given.login.decode(), given.password.decode()))
        good = given.password == b"correct horse"
        return AuthResult(success=good, handled=good or None)


@contextmanager
def open_office(
    *, starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Office]:
    office, loop = Office(), EventLoopThread()
    conversations: list[SMTP] = []

    def conversation() -> SMTP:
        conversations.append(
            SMTP(
                office,
                tls_context=starttls,
                require_starttls=starttls is not None,
                authenticator=office.authenticate,
                auth_require_tls=False,
            )
        )
        return conversations[-1]

    async def begin() -> asyncio.Server:
        running = asyncio.get_running_loop()
        return await running.create_server(conversation, "127.0.0.1", 0, ssl=tls)

    async def end() -> None:
        server.close()
        for one in conversations:
            if one.transport is not None:
                one.transport.abort()
        await asyncio.sleep(0)

    server = loop.submit(begin()).result(30)
    office.port = server.sockets[0].getsockname()[1]
    try:
        yield office
    finally:
        loop.submit(end()).result(30)
        loop.close()
