"""Sends mail through an SMTP server that a tenant chose.

By the rules of tools/httpclient/outbound.py: its name is resolved once, an address that is not
public is refused, the connection goes to exactly that address, unencrypted only into networks that
the operator opened. All recipients are accepted or the message is sent to none.
"""

import asyncio
import smtplib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, BinaryIO

from django.conf import settings

from audit.alerts.alert_channels import DeliveryFailed
from sandbox.egress.dial import client_context
from sandbox.egress.rules.egress_policy import Denied
from sandbox.egress.rules.grammar import parse_host
from tools.catalog.mcp import mcp_transports

_MOST_REPLIES = 256 * 1024  # bytes of one conversation
_CONNECT_S = 15.0


class RecipientsRefused(DeliveryFailed):
    """The server refuses some recipients; the message was sent to none."""

    def __init__(self, refused: dict[str, str], *, lasting: bool) -> None:
        super().__init__(f"The server refuses recipients: {', '.join(refused)}.")
        self.refused, self.lasting = refused, lasting


@dataclass(frozen=True)
class MailMessage:
    """`delivery` is the same each time it is sent, and its Message-ID with it."""

    delivery: str
    recipients: list[str]
    subject: str
    body: str


def send_mail(
    options: dict[str, Any], password: str, letter: MailMessage, timeout_s: float, organization: str
) -> str:
    """The server's reply when it accepted the message. Raises `NotTold`."""
    channel = _connect(options, organization)
    with _close_after(timeout_s, channel):
        return _submit_mail(_MailConnection(channel, options, timeout_s), options, password, letter)


def mail_content(sender: str, letter: MailMessage) -> bytes:
    made = EmailMessage(policy=SMTP)
    made["From"] = sender
    made["To"] = ", ".join(letter.recipients)
    made["Subject"] = letter.subject
    made["Message-ID"] = f"<{letter.delivery}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(letter.body)
    return made.as_bytes()


def _connect(options: dict[str, Any], organization: str) -> socket.socket:
    """Connects to a checked address."""
    host, clear = parse_host(options["host"]), options["security"] == "none"
    dialer = mcp_transports.dialer("http" if clear else "https", organization)

    async def dial() -> socket.socket:
        line = await dialer.connect(host, options["port"], dialer.turns())
        return line.stream.channel

    try:

        async def bounded() -> socket.socket:
            async with asyncio.timeout(_CONNECT_S):
                return await dial()

        return mcp_transports.wait_for(bounded(), _CONNECT_S + 1)
    except Denied as refusal:
        raise DeliveryFailed(f"{refusal.code}: {refusal}.") from None
    except TimeoutError:
        raise DeliveryFailed("The mail server did not answer in time.") from None


@contextmanager
def _close_after(timeout_s: float, channel: socket.socket) -> Iterator[None]:
    """Closes the connection at the deadline, so that a slow server cannot exceed it."""
    raw = channel.dup()

    def end() -> None:
        with suppress(OSError):
            raw.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        raw.close()


class _BoundedReplies:
    """A server's replies, with a limit on their size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _MOST_REPLIES

    def readline(self, most: int) -> bytes:
        line = self._file.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise OSError("the server sends too much")
        return line

    def close(self) -> None:
        self._file.close()


class _MailConnection(smtplib.SMTP):
    """SMTP over an existing connection."""

    def __init__(self, channel: socket.socket, options: dict[str, Any], timeout_s: float) -> None:
        self._channel, self._options = channel, options
        self._replies: _BoundedReplies | None = None
        super().__init__(local_hostname=options["sender"].rpartition("@")[2], timeout=timeout_s)
        self._host = options["host"]

    @property
    def file(self) -> Any:
        return self._replies

    @file.setter
    def file(self, file: Any) -> None:
        self._replies = None if file is None else _BoundedReplies(file)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._channel.settimeout(timeout)
        if self._options["security"] != "tls":
            return self._channel
        context = client_context(settings.EGRESS_CA_FILE)
        return context.wrap_socket(self._channel, server_hostname=self._options["host"])


def _submit_mail(
    server: _MailConnection, options: dict[str, Any], password: str, letter: MailMessage
) -> str:
    begun = False
    try:
        _log_in(server, options, password)
        _announce_recipients(server, options["sender"], letter.recipients)
        data = mail_content(options["sender"], letter)
        begun = True
        code, reply = server.data(data)
        if code != 250:
            raise smtplib.SMTPDataError(code, reply)
        return _reply_text(code, reply)
    except smtplib.SMTPResponseException as refusal:
        raise DeliveryFailed(_refusal_message(refusal)) from None
    except (OSError, smtplib.SMTPException, ValueError) as problem:
        reason = f"The mail server could not be used ({type(problem).__name__})."
        raise DeliveryFailed(reason, begun=begun) from None
    finally:
        _quit(server)


def _log_in(server: _MailConnection, options: dict[str, Any], password: str) -> None:
    code, reply = server.connect(options["host"], options["port"])
    if code != 220:
        raise smtplib.SMTPConnectError(code, reply)
    server.ehlo_or_helo_if_needed()
    if options["security"] == "starttls":
        server.starttls(context=client_context(settings.EGRESS_CA_FILE))
        server.ehlo_or_helo_if_needed()
    if options["username"]:
        server.login(options["username"], password)


def _announce_recipients(server: _MailConnection, sender: str, recipients: list[str]) -> None:
    """Raises `RecipientsRefused` where one of them is refused, so that no message goes to only
    some.
    """
    code, reply = server.mail(sender)
    if code != 250:
        raise smtplib.SMTPResponseException(code, reply)
    answers = {one: server.rcpt(one) for one in recipients}
    refused = {one: answer for one, answer in answers.items() if answer[0] not in {250, 251}}
    if refused:
        lasting = any(code >= 500 for code, _ in refused.values())
        raise RecipientsRefused(
            {one: _reply_text(*answer) for one, answer in refused.items()}, lasting=lasting
        )


def _refusal_message(refusal: smtplib.SMTPResponseException) -> str:
    """An answer to a login may quote what was sent, so only its number is reported."""
    if isinstance(refusal, smtplib.SMTPAuthenticationError):
        return f"The mail server refuses the login with {refusal.smtp_code}."
    said = refusal.smtp_error
    return f"The mail server refused it: {_reply_text(refusal.smtp_code, said)}"


def _reply_text(code: int, reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return f"{code} {' '.join(text.split())}"[:300]


def _quit(server: _MailConnection) -> None:
    with suppress(OSError, smtplib.SMTPException):
        if server.sock is not None:
            server.quit()
    server.close()
    server._channel.close()
