"""Runs tools of a queue service: sends a request to its queue, and awaits the answer."""

import json
import threading
from functools import lru_cache

from django.conf import settings

from config.brokers import broker_of
from sandbox.errors import ErrorCode
from sandbox.spec import Outcome
from toolcrib_service.wire import Queue
from tools.runners.base import Run, UpstreamResult
from tools.toolservices.client import UNAVAILABLE, Asked, Client
from tools.toolservices.elsewhere import KombuClient
from tools.toolservices.endings import Cancelled, Failed, Lost, NotAnswered, NotBegun, TimedOut

_lock = threading.Lock()
_elsewhere: dict[str, KombuClient] = {}


@lru_cache(maxsize=1)
def client() -> Client:
    return Client(settings.REDIS_URL)


def client_of(organization: str, service: str) -> Client | KombuClient:
    """The client of the broker that the operator configured for the service, else of our own."""
    broker = broker_of(settings.TOOL_SERVICE_BROKERS, organization, service)
    if broker is None:
        return client()
    with _lock:
        key = json.dumps([broker.url, broker.options], sort_keys=True)
        if key not in _elsewhere:
            _elsewhere[key] = KombuClient(broker)
        return _elsewhere[key]


def run(job: Run) -> UpstreamResult:
    implementation = job.definition.raw["implementation"]
    service = job.snapshot.services.get(implementation["service"])
    if service is None or not service.request_queue:
        return _failed(UNAVAILABLE, "The tool's service is not registered, or has no queue.")
    asked = Asked(
        queue=Queue(job.organization, service.request_queue),
        user=job.caller,
        config=implementation["config"],
        arguments=job.arguments,
        timeout_s=job.timeout_s,
        most_bytes=job.definition.max_output_bytes,
    )
    try:
        own = client_of(job.organization, service.name)
        text = own.call(asked, stop=job.stop, until=job.until, tell=job.tell)
    except NotAnswered as ending:
        return _ended(ending)
    return UpstreamResult(Outcome.SUCCESS, output=text)


def _ended(ending: NotAnswered) -> UpstreamResult:
    match ending:
        case NotBegun(code=code) | Failed(code=code):
            return _failed(code, str(ending))
        case Lost():
            return _failed(ErrorCode.LOST, str(ending))
        case TimedOut():
            outcome, code = Outcome.TIMEOUT, ErrorCode.TIMEOUT
        case Cancelled(begun=begun):
            outcome, code = Outcome.CANCELLED, ErrorCode.CANCELLED
            if not begun:
                code = ErrorCode.NOT_BEGUN
        case _:
            raise AssertionError(f"an ending of no known kind: {ending!r}")
    return UpstreamResult(outcome, error_code=code, error_message=str(ending))


def _failed(code: str, message: str) -> UpstreamResult:
    return UpstreamResult(Outcome.FAILED, error_code=code, error_message=message)
