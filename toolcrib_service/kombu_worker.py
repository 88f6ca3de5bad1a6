"""A service on any broker that kombu knows: RabbitMQ and the like. Needs the package `kombu`.

Some functions need Redis (`docs/service-authors.md`): without it no process reports its liveness,
no request is withdrawn, no call is cancelled when its caller is gone, and no service announces
itself.
A request is acknowledged before it is performed: it runs once, or not at all.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from kombu.connection import Connection
from kombu.entity import Queue as Place
from kombu.exceptions import KombuError
from kombu.messaging import Consumer, Producer

from toolcrib_service.queue_protocol import (
    Malformed,
    Queue,
    Request,
    Response,
    broker_message,
    key_prefix,
    message_fields,
    shorten_error,
)
from toolcrib_service.service import DynamicToolService
from toolcrib_service.service_calls import Call, CallAbandoned, Loop, answer_responses

log = logging.getLogger(__name__)
MOST_S = 86_400.0
_WAIT_S = 0.5  # how long a stop may wait for a thread that listens
_PAUSE_S = 1.0  # before a broker that failed is asked again


class KombuWorker:
    """One process of a service: like `Worker`, as far as the broker allows."""

    def __init__(
        self,
        service: DynamicToolService,
        url: str,
        *,
        organization: str = "default",
        concurrency: int = 4,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.service, self.organization = service, organization
        self.queue = Queue(organization, service.requests_name())
        self.name = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._url, self._options = url, dict(options or {})
        self._stopping, self._loop = threading.Event(), Loop()
        self._calls: dict[str, Call] = {}
        self._readers = [
            threading.Thread(target=self._listen, name=f"call-{at}", daemon=True)
            for at in range(concurrency)
        ]

    def start(self) -> None:
        """Raises `OSError` and what the transport raises where the broker cannot be used."""
        with self._connection() as connection:
            connection.ensure_connection(max_retries=1, timeout=10)
            _request_queue(self.queue, connection.default_channel).declare()
        for thread in self._readers:
            thread.start()

    def stop(self, grace_s: float = 20.0) -> bool:
        """Takes no more requests and waits for running calls. False where one was abandoned."""
        self._stopping.set()
        deadline = time.monotonic() + grace_s
        for thread in self._readers:
            thread.join(max(0.0, deadline - time.monotonic()))
        for call in list(self._calls.values()):
            call.cancel()
        for thread in self._readers:
            thread.join(_WAIT_S + 1.0)
        done = not any(thread.is_alive() for thread in self._readers)
        if done:
            self._loop.close()
        return done

    def _connection(self) -> Any:
        return Connection(self._url, transport_options=self._options)

    def _listen(self) -> None:
        """Each thread has its own connection: connections of kombu are not thread-safe."""
        while not self._stopping.is_set():
            connection = self._connection()
            try:
                with connection:
                    self._serve(connection)
            except (*connection.connection_errors, *connection.channel_errors, KombuError) as error:
                log.warning("the broker did not answer: %s", type(error).__name__)
                self._stopping.wait(_PAUSE_S)

    def _serve(self, connection: Any) -> None:
        taken: list[Any] = []
        channel = connection.default_channel
        consumer = Consumer(
            channel, [_request_queue(self.queue, channel)], accept=["text/plain"],
            on_message=taken.append, prefetch_count=1,
        )  # fmt: skip
        with consumer:
            while not self._stopping.is_set():
                try:
                    connection.drain_events(timeout=_WAIT_S)
                except TimeoutError:
                    continue
                while taken:
                    consumer.cancel()  # other processes take further requests meanwhile
                    self._take(connection, taken.pop(0))
                    consumer.consume()

    def _take(self, connection: Any, message: Any) -> None:
        if self._stopping.is_set():
            message.requeue()
            return
        message.ack()  # before it is performed: a request runs once, or not at all
        try:
            said = message_fields(message)
            request, place = Request.read(said), said["reply_to"]
            if not place.startswith(key_prefix(self.organization)):
                raise Malformed("a request wants its answer somewhere else")
        except Malformed as error:
            log.warning("a request was dropped: %s", error)
            return
        left_s = min(MOST_S, request.deadline_ms / 1000 - time.time())
        if left_s > 0:
            self._perform(connection, Call(request, left_s), place)

    def _perform(self, connection: Any, call: Call, place: str) -> None:
        self._calls[call.request.id] = call
        try:
            with Producer(connection.default_channel) as producer:
                for n, response in enumerate(answer_responses(self.service, call, self._loop), 1):
                    call.check()
                    _publish_response(producer, place, call.request, n, shorten_error(response))
        except CallAbandoned:
            log.info("a call was abandoned: its deadline has passed")
        finally:
            del self._calls[call.request.id]


def _request_queue(queue: Queue, channel: Any) -> Any:
    return Place(queue.requests, channel=channel, routing_key=queue.requests, durable=True)


def _publish_response(
    producer: Any, place: str, request: Request, n: int, response: Response
) -> None:
    producer.publish(**broker_message(place, response.fields(request, n)))
