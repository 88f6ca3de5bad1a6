"""Runs tools of a queue service: sends a request to its queue, and awaits the answer."""

import json
import threading
from functools import lru_cache

from django.conf import settings

from config.external_servers import find_broker
from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from toolcrib_service.queue_protocol import Queue
from tools.runners.tool_runs import ToolRun, UpstreamResult
from tools.toolservices.answer_stream import (
    NotAnswered,
    NotBegun,
    TimedOut,
    ToolServiceCallCancelled,
    ToolServiceCallFailed,
    ToolServiceCallLost,
)
from tools.toolservices.kombu_client import KombuClient
from tools.toolservices.redis_client import UNAVAILABLE, ToolServiceClient, ToolServiceRequest

_lock = threading.Lock()
_elsewhere: dict[str, KombuClient] = {}


@lru_cache(maxsize=1)
def client() -> ToolServiceClient:
    return ToolServiceClient(settings.REDIS_URL)


def client_of(organization: str, service: str) -> ToolServiceClient | KombuClient:
    """The client of the broker that the operator configured for the service, else of our own."""
    broker = find_broker(settings.TOOL_SERVICE_BROKERS, organization, service)
    if broker is None:
        return client()
    with _lock:
        key = json.dumps([broker.url, broker.options], sort_keys=True)
        if key not in _elsewhere:
            _elsewhere[key] = KombuClient(broker)
        return _elsewhere[key]


def run(job: ToolRun) -> UpstreamResult:
    implementation = job.definition.raw["implementation"]
    service = job.snapshot.services.get(implementation["service"])
    if service is None or not service.request_queue:
        return _failed(UNAVAILABLE, "The tool's service is not registered, or has no queue.")
    asked = ToolServiceRequest(
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
    return UpstreamResult(RunOutcome.SUCCESS, output=text)


def _ended(ending: NotAnswered) -> UpstreamResult:
    match ending:
        case NotBegun(code=code) | ToolServiceCallFailed(code=code):
            return _failed(code, str(ending))
        case ToolServiceCallLost():
            return _failed(ErrorCode.LOST, str(ending))
        case TimedOut():
            outcome, code = RunOutcome.TIMEOUT, ErrorCode.TIMEOUT
        case ToolServiceCallCancelled(begun=begun):
            outcome, code = RunOutcome.CANCELLED, ErrorCode.CANCELLED
            if not begun:
                code = ErrorCode.NOT_BEGUN
        case _:
            raise AssertionError(f"an ending of no known kind: {ending!r}")
    return UpstreamResult(outcome, error_code=code, error_message=str(ending))


def _failed(code: str, message: str) -> UpstreamResult:
    return UpstreamResult(RunOutcome.FAILED, error_code=code, error_message=message)
