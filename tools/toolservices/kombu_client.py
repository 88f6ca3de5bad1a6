"""Calls a tool service on any broker that kombu supports, where an operator configured one.

What cannot be had there (toolcrib_service/kombu_worker.py) shows in how calls end: it is unknown
whether a sent request was taken, so an abandoned one may have begun, and one whose process died
ends when its time is deadline.
"""

import hmac
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from kombu.connection import Connection
from kombu.entity import Queue as Place
from kombu.exceptions import KombuError
from kombu.messaging import Consumer, Producer

from config.external_servers import CeleryBroker
from toolcrib_service.queue_protocol import (
    MAX_REQUEST,
    Queue,
    Request,
    broker_message,
    key_prefix,
    message_fields,
)
from tools.toolservices.answer_stream import (
    INVALID,
    LONGEST,
    AnswerAssembly,
    NotBegun,
    TimedOut,
    ToolServiceCallCancelled,
    ToolServiceCallFailed,
    ToolServiceCallLost,
)
from tools.toolservices.redis_client import UNAVAILABLE, ToolServiceRequest

log = logging.getLogger(__name__)
_CANCEL_CHECK_S = 0.25  # how long a cancelled call may wait to be seen
_WAIT_S = 0.5
_CONNECT_S = 5.0
_MOST_UNREAD = 1_000  # answers of one call; more are waited for by the broker
_IDLE_S = 300.0
_BROKER_UNAVAILABLE = "The broker of the tool service does not answer."


class KombuClient:
    """Of one broker. Thread-safe; all calls of the process share a queue for answers."""

    def __init__(self, broker: CeleryBroker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.Queue[dict[str, str]]] = {}
        self._listeners: dict[str, _Listener] = {}
        self._pid = os.getpid()

    def call(
        self,
        request: ToolServiceRequest,
        *,
        stop: threading.Event,
        until: Callable[[], float] | None,
        tell: Callable[[str], None],
    ) -> str:
        """The whole answer. Raises `NotAnswered`."""
        call, token = uuid4().hex, secrets.token_urlsafe(24)
        answers: queue.Queue[dict[str, str]] = queue.Queue(_MOST_UNREAD)
        listener = self._find_listener(request.queue.organization)
        assembly = AnswerAssembly(call, token, most_bytes=request.most_bytes, tell=tell)
        ordered = _OrderedAnswers(assembly, token)
        deadline = time.monotonic() + request.timeout_s
        with self._lock:
            self._waiting[call] = answers
        try:
            self._send(request, call, token, listener.place)
            while not assembly.done:
                now = time.monotonic()
                if stop.is_set() or (until is not None and now > until()):
                    raise ToolServiceCallCancelled(begun=True)
                if now > deadline:
                    raise TimedOut("The tool service did not come to an end in time.")
                try:
                    ordered.take(
                        answers.get(timeout=min(_CANCEL_CHECK_S, max(0.0, deadline - now)))
                    )
                except queue.Empty:
                    continue
        finally:
            with self._lock:
                del self._waiting[call]
        return assembly.text

    def close(self) -> None:
        with self._lock:
            listeners, self._listeners = list(self._listeners.values()), {}
        for one in listeners:
            one.close()

    def _find_listener(self, organization: str) -> "_Listener":
        """Answers of an organization's services come to a queue of its own."""
        with self._lock:
            if self._pid != os.getpid():  # connections belong to the process that opened them
                self._pid, self._listeners = os.getpid(), {}
            listener = self._listeners.get(organization)
            if listener is None or not listener.alive:
                listener = _Listener(self._broker, organization, self._dispatch)
                self._listeners[organization] = listener
        listener.wait_until_ready()
        return listener

    def _dispatch(self, fields: dict[str, str]) -> None:
        """Passes an answer to the call that waits for it; others are dropped."""
        with self._lock:
            found = self._waiting.get(fields.get("id", ""))
        if found is not None:
            try:
                found.put_nowait(fields)
            except queue.Full:
                return  # a part is missing then, and the call says so

    def _send(self, request: ToolServiceRequest, call: str, token: str, place: str) -> None:
        body = Request(call, token, 0, request.user, request.config, request.arguments).envelope()
        if len(body) > MAX_REQUEST:
            raise NotBegun("SERVICE_REQUEST_TOO_LARGE", "The arguments are too large to be sent.")
        deadline = round((time.time() + request.timeout_s) * 1000)
        fields = {"id": call, "token": token, "deadline_ms": str(deadline), "body": body}
        message = broker_message(
            request.queue.requests, fields, reply_to=place, expiration=request.timeout_s
        )
        with _connection(self._broker) as connection:
            try:
                connection.ensure_connection(max_retries=1, timeout=_CONNECT_S)
                channel = connection.default_channel
                _request_queue(request.queue, channel).declare()
            except _broker_errors(connection):
                raise NotBegun(UNAVAILABLE, _BROKER_UNAVAILABLE) from None
            try:
                Producer(channel).publish(**message, retry=False)
            except _broker_errors(connection):
                raise ToolServiceCallLost(
                    "The connection to the broker broke while the request was sent."
                ) from None


class _OrderedAnswers:
    """Puts answers in the order in which they were sent, which not every broker keeps."""

    def __init__(self, assembly: AnswerAssembly, token: str) -> None:
        self._gathering, self._token = assembly, token.encode()
        self._early: dict[int, dict[str, str]] = {}
        self._next = 1

    def take(self, fields: dict[str, str]) -> None:
        """Raises `ToolServiceCallFailed`."""
        number = fields.get("n", "")
        token = fields.get("token", "").encode("utf-8", "replace")
        if not number.isdecimal() or len(number) > 9 or not hmac.compare_digest(token, self._token):
            self._gathering.take(fields)  # which counts what it drops
            return
        self._early.setdefault(int(number), fields)
        if len(self._early) > _MOST_UNREAD:
            raise ToolServiceCallFailed(
                INVALID, "A part of the service's answer is missing, or it has too many."
            )
        while self._next in self._early and not self._gathering.done:
            self._gathering.take(self._early.pop(self._next))
            self._next += 1


class _Listener:
    """A thread that reads answers from a queue, which is deleted with it."""

    def __init__(
        self, broker: CeleryBroker, organization: str, dispatch: Callable[[dict[str, str]], None]
    ) -> None:
        self.place = f"{key_prefix(organization)}replies:{secrets.token_hex(16)}"
        self._broker, self._dispatch = broker, dispatch
        self._ready, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen, name="answers", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def wait_until_ready(self) -> None:
        """Raises `NotBegun`."""
        if not self._ready.wait(_CONNECT_S * 2) or not self.alive:
            raise NotBegun(UNAVAILABLE, _BROKER_UNAVAILABLE)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(_WAIT_S * 4)

    def _listen(self) -> None:
        """Runs until it is closed, or the broker is gone: then the next call starts another."""
        connection = _connection(self._broker)
        # The broker may deliver invalid messages.
        faults: tuple[type[Exception], ...] = (*_broker_errors(connection), ValueError)
        try:
            with connection:
                connection.ensure_connection(max_retries=1, timeout=_CONNECT_S)
                channel = connection.default_channel
                place = Place(
                    self.place, channel=channel, routing_key=self.place, durable=False,
                    auto_delete=True, expires=_IDLE_S, max_length_bytes=64 * LONGEST,
                )  # fmt: skip
                consumer = Consumer(
                    channel, [place], accept=["text/plain"], no_ack=True, on_message=self._take
                )
                with consumer:
                    self._ready.set()
                    self._drain(connection)
                place.delete()
        except faults as error:
            log.warning("the broker of a tool service did not answer: %s", type(error).__name__)
        finally:
            self._ready.set()

    def _drain(self, connection: Any) -> None:
        while not self._closing.is_set():
            try:
                connection.drain_events(timeout=_WAIT_S)
            except TimeoutError:
                continue

    def _take(self, message: Any) -> None:
        if len(message.body or "") <= LONGEST:
            self._dispatch(message_fields(message))


def _connection(broker: CeleryBroker) -> Any:
    options = {"confirm_publish": True, **broker.options}
    return Connection(broker.url, transport_options=options, connect_timeout=_CONNECT_S)


def _request_queue(place: Queue, channel: Any) -> Any:
    name = place.requests
    return Place(name, channel=channel, routing_key=name, durable=True)


def _broker_errors(connection: Any) -> tuple[type[Exception], ...]:
    return (*connection.connection_errors, *connection.channel_errors, KombuError, OSError)
